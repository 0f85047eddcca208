"""Packages for Red Hat's systems and SUSE's, by rpmbuild."""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from textwrap import indent

from packages import GLIBC, HOME, MAINTAINER, REMOVE_STATE, Package, lay_out

# Where zsh looks for completions of packages.
ZSH = "site-functions"

# What is done after the files are in place, and before and after they are removed.
SCRIPTS = {
    # Also when a driver of NVIDIA's comes or goes.
    "causeway-client-system": {
        "post": "/usr/lib/causeway/for-every-program",
        "preun": "if [ $1 = 0 ]; then /usr/lib/causeway/for-every-program --not; fi",
        "transfiletriggerin -- /usr/lib64/libcuda.so": "/usr/lib/causeway/for-every-program",
        "transfiletriggerpostun -- /usr/lib64/libcuda.so": "/usr/lib/causeway/for-every-program",
    },
    # As systemd's macros have it, a service is not started by its installation. One that runs is reloaded, over which
    # sessions go on; a release that cannot be is started again.
    "causeway-server": {
        "post": "systemd-sysusers causeway.conf >/dev/null 2>&1 || groupadd --system --force causeway || :\n"
        "if [ -d /run/systemd/system ]; then systemctl daemon-reload || :; fi",
        "preun": "if [ $1 = 0 ] && [ -d /run/systemd/system ]; then systemctl --no-reload disable --now causeway.service || :; fi",
        "postun": "if [ $1 -ge 1 ] && [ -d /run/systemd/system ]; then { systemctl reload causeway.service 2>/dev/null || systemctl try-restart causeway.service || :; }; fi\n"
        + "if [ $1 = 0 ]; then\n"
        + indent(REMOVE_STATE, "    ")
        + "fi",
    },
}

# The libraries are found by no package as the driver's: nothing is provided under its name, and nothing
# taken apart.
SPEC = """\
Name: {name}
Version: {version}
Release: 1
Summary: {summary}
License: Apache-2.0
URL: {home}
Packager: {maintainer}
BuildArch: x86_64
AutoReqProv: no
Requires: {needs}
%global debug_package %{{nil}}
%global __os_install_post %{{nil}}
%global _build_id_links none
%define _binary_payload w6.xzdio

%description
{description}

%install
cp -a {place}/. %{{buildroot}}/

%files
{files}
{scripts}
"""


def spec(package: Package, version: str, place: Path) -> str:
    """What rpmbuild is told."""
    needs = [f"glibc >= {GLIBC}", *(f"{name} = {version}" for name in package.needs)]
    lines = []
    for file in sorted(place.rglob("*")):
        path = "/" + str(file.relative_to(place))
        if file.is_dir() and not file.is_symlink():
            # Folders that no other package has.
            ours = ("/usr/share/doc/", "/usr/lib/causeway", "/usr/share/causeway", "/usr/include/causeway")
            if path.startswith((*ours, "/usr/share/cmake/causeway")):
                lines.append(f"%dir {path}")
        elif path in package.settings:
            lines.append(f"%config(noreplace) {path}")
        else:
            lines.append(path)
    scripts = "\n".join(f"%{name}\n{text}\n" for name, text in SCRIPTS.get(package.name, {}).items())
    return SPEC.format(
        name=package.name,
        version=version,
        summary=package.summary,
        home=HOME,
        maintainer=MAINTAINER,
        needs=", ".join(needs),
        description=package.description,
        place=place,
        files="\n".join(f"%attr(-,root,root) {line}" if not line.startswith("%") else line for line in lines),
        scripts=scripts,
    )


def build(package: Package, version: str, out: Path, moment: int) -> Path:
    """Makes the package; where it is. `moment`, in seconds since 1970, is the age of all its files."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder, "root")
        lay_out(package, version, place)
        for file in place.rglob("*"):
            os.utime(file, (moment, moment), follow_symlinks=False)
        text = Path(folder, "package.spec")
        text.write_text(spec(package, version, place), encoding="utf-8")
        defines = {
            "_topdir": f"{folder}/build",
            "_buildhost": "causeway",
            "use_source_date_epoch_as_buildtime": "1",
            "clamp_mtime_to_source_date_epoch": "1",
        }
        command = ["rpmbuild", "-bb", "--quiet", "--target", "x86_64-linux"]
        for name, value in defines.items():
            command += ["--define", f"{name} {value}"]
        environment = os.environ | {"SOURCE_DATE_EPOCH": str(moment)}
        done = subprocess.run([*command, str(text)], capture_output=True, text=True, env=environment)
        if done.returncode != 0:
            raise RuntimeError(f"rpmbuild cannot make {package.name}: {done.stderr}")
        [made] = Path(folder, "build/RPMS").rglob("*.rpm")
        path = out / made.name
        shutil.copyfile(made, path)
    return path
