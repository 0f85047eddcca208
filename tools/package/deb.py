"""Packages for Debian and Ubuntu, by dpkg-deb."""

import os
import subprocess
import tempfile
from pathlib import Path
from textwrap import indent

from packages import GLIBC, HOME, MAINTAINER, REMOVE_STATE, Package, lay_out

# Where zsh looks for completions of packages.
ZSH = "vendor-completions"

# What is done after the files are in place, and before and after they are removed: deb-postinst(5),
# deb-prerm(5).
SCRIPTS = {
    # Also when a driver of NVIDIA's comes or goes: see TRIGGERS.
    "causeway-client-system": {
        "postinst": 'case $1 in configure | triggered) /usr/lib/causeway/for-every-program ;; esac\n',
        "prerm": 'if [ "$1" = remove ]; then /usr/lib/causeway/for-every-program --not; fi\n',
    },
    # As dh_installsystemd has it: started when it is installed, unless the administrator has switched it off, and
    # reloaded when it is upgraded, over which sessions go on; a release that cannot be is started again. A machine
    # without systemd, such as a container that is being made, is left as it is.
    "causeway-server": {
        "postinst": """\
if [ "$1" = configure ]; then
    if command -v systemd-sysusers >/dev/null; then systemd-sysusers causeway.conf; else groupadd --system --force causeway; fi
    if command -v deb-systemd-helper >/dev/null; then
        deb-systemd-helper unmask causeway.service >/dev/null || true
        deb-systemd-helper enable causeway.service >/dev/null || true
    fi
    if [ -d /run/systemd/system ]; then
        systemctl --system daemon-reload >/dev/null || true
        systemctl reload causeway.service >/dev/null 2>&1 || deb-systemd-invoke restart causeway.service >/dev/null || true
    fi
fi
""",
        "prerm": """\
if [ "$1" = remove ] && [ -d /run/systemd/system ]; then deb-systemd-invoke stop causeway.service >/dev/null || true; fi
""",
        "postrm": 'if [ "$1" = purge ]; then\n'
        + indent(REMOVE_STATE, "    ")
        + """\
    if command -v deb-systemd-helper >/dev/null; then deb-systemd-helper purge causeway.service >/dev/null || true; fi
fi
if [ -d /run/systemd/system ]; then systemctl --system daemon-reload >/dev/null || true; fi
""",
    },
}

# Files of others at whose change `postinst triggered` runs: deb-triggers(5).
TRIGGERS = {
    "causeway-client-system": [
        f"{folder}/libcuda.so.1"
        for folder in ("/usr/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu/nvidia/current")
    ]
}


def control(package: Package, version: str, kib: int) -> str:
    """The file that says what the package is: deb-control(5)."""
    needs = [f"libc6 (>= {GLIBC})", *(f"{name} (= {version})" for name in package.needs)]
    if package.name == "causeway-server":
        needs.append("init-system-helpers")
    lines = [
        f"Package: {package.name}",
        f"Version: {version}",
        "Architecture: amd64",
        f"Maintainer: {MAINTAINER}",
        f"Installed-Size: {kib}",
        f"Depends: {', '.join(needs)}",
        "Section: misc",
        "Priority: optional",
        f"Homepage: {HOME}",
        f"Description: {package.summary}",
        f" {package.description}",
    ]
    return "\n".join(lines) + "\n"


def build(package: Package, version: str, out: Path, moment: int) -> Path:
    """Makes the package; where it is. `moment`, in seconds since 1970, is the age of all its files."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder, "root")
        lay_out(package, version, place)
        kib = (
            sum(file.stat().st_size for file in place.rglob("*") if file.is_file() and not file.is_symlink())
            // 1024
            + 1
        )
        about = place / "DEBIAN"
        about.mkdir(mode=0o755)
        (about / "control").write_text(control(package, version, kib), encoding="utf-8")
        if package.settings:
            (about / "conffiles").write_text(
                "".join(f"{path}\n" for path in package.settings), encoding="utf-8"
            )
        for name, text in SCRIPTS.get(package.name, {}).items():
            (about / name).write_text(f"#!/bin/sh\nset -e\n{text}", encoding="utf-8")
            (about / name).chmod(0o755)
        if package.name in TRIGGERS:
            lines = [f"interest-noawait {path}\n" for path in TRIGGERS[package.name]]
            (about / "triggers").write_text("".join(lines), encoding="utf-8")
        path = out / f"{package.name}_{version}_amd64.deb"
        command = ["dpkg-deb", "--root-owner-group", "-Zxz", "--build", str(place), str(path)]
        environment = os.environ | {"SOURCE_DATE_EPOCH": str(moment)}
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment)
    return path
