"""Which packages are there, what is in each, and what a package needs: the same for Debian's and for Red
Hat's.

| package | for |
| --- | --- |
| `causeway` | the program, its manual, completions |
| `causeway-client` | the libraries that programs find by `causeway run` |
| `causeway-client-system` | lets every program of the machine find them |
| `causeway-server` | the service |
"""

import gzip
import shutil
from dataclasses import dataclass, field
from pathlib import Path

from layout import LIBRARIES, LINKS, install

HOME = "https://github.com/causeway-gpu/causeway"
MAINTAINER = "The Causeway developers <causeway@users.noreply.github.com>"
# What the files need, as `check` has found.
GLIBC = "2.28"


@dataclass(frozen=True)
class Package:
    """A package, and where its files are."""

    name: str
    summary: str
    description: str
    needs: tuple[str, ...] = ()
    # Files that the administrator may change.
    settings: tuple[str, ...] = ()
    files: dict[str, Path] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)


# Where shells look for completions.
COMPLETIONS = {
    "bash": "/usr/share/bash-completion/completions/causeway",
    "zsh": "/usr/share/zsh/{zsh}/_causeway",
    "fish": "/usr/share/fish/vendor_completions.d/causeway.fish",
}


def packages(tree: Path, root: Path, said: Path, zsh: str) -> list[Package]:
    """The packages, from a tree and the files of `packaging`. `said` is a folder with manual pages and
    completions, `zsh` where a system's zsh has those of packages."""
    ours = root / "packaging"
    libraries = tree / "lib/causeway"
    program = {"/usr/bin/causeway": tree / "bin/causeway"}
    for page in sorted(said.glob("*.1")):
        program[f"/usr/share/man/man1/{page.name}.gz"] = page
    for shell, path in COMPLETIONS.items():
        if (said / shell).exists():
            program[path.format(zsh=zsh)] = said / shell
    program |= documents("causeway", root)
    return [
        Package(
            "causeway",
            "run CUDA programs on GPUs that are elsewhere",
            "The program causeway: it runs CUDA programs on a server's GPUs (with causeway-client) and serves the GPUs of a"
            " machine (as a service with causeway-server).",
            files=program,
        ),
        Package(
            "causeway-client",
            "libraries that take the place of NVIDIA's driver",
            "Unmodified CUDA programs load these libraries in place of NVIDIA's driver when they are started by `causeway run`."
            " The machine needs neither GPU nor driver.",
            needs=("causeway",),
            files={f"/usr/lib/causeway/{name}": libraries / name for name in LIBRARIES}
            | {"/usr/share/modulefiles/causeway/{version}.lua": ours / "lmod/causeway.lua"}
            | documents("causeway-client", root),
            links={f"/usr/lib/causeway/{name}": target for name, target in LINKS.items()},
        ),
        Package(
            "causeway-client-system",
            "every program of the machine uses a Causeway server",
            "Puts Causeway's libraries into the search path of the whole machine (ld.so.conf.d), so that programs need no"
            " `causeway run`: for machines without NVIDIA's driver.",
            needs=("causeway-client",),
            settings=("/etc/ld.so.conf.d/000-causeway.conf",),
            files={"/etc/ld.so.conf.d/000-causeway.conf": ours / "client/causeway.conf"}
            | documents("causeway-client-system", root),
        ),
        Package(
            "causeway-server",
            "service that offers this machine's GPUs to other machines",
            "The service causeway.service. It listens at this machine alone until /etc/causeway/serve.toml says otherwise, and asks"
            " for a key that it makes at its first start.",
            needs=("causeway",),
            settings=("/etc/causeway/serve.toml",),
            files={
                "/usr/lib/systemd/system/causeway.service": ours / "systemd/causeway.service",
                "/usr/lib/sysusers.d/causeway.conf": ours / "systemd/causeway.sysusers",
                "/etc/causeway/serve.toml": ours / "systemd/serve.toml",
            }
            | documents("causeway-server", root),
        ),
    ]


def documents(name: str, root: Path) -> dict[str, Path]:
    """What says under which terms a package may be used."""
    folder = f"/usr/share/doc/{name}"
    return {
        f"{folder}/copyright": root / "LICENSE",
        f"{folder}/THIRD-PARTY-NOTICES.md": root / "THIRD-PARTY-NOTICES.md",
    }


def lay_out(package: Package, version: str, place: Path) -> None:
    """Puts the files of a package where they lie on a machine whose root is `place`."""
    for path, source in package.files.items():
        target = place / path.format(version=version).lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        if path.endswith(".gz"):
            target.write_bytes(gzip.compress(source.read_bytes(), mtime=0))
            target.chmod(0o644)
        elif path.startswith(("/usr/bin/", "/usr/lib/causeway/")):
            install(source, target)
        else:
            shutil.copyfile(source, target)
            target.chmod(0o644)
    for path, target in package.links.items():
        (place / path.lstrip("/")).symlink_to(target)
    for folder in [place, *place.rglob("*")]:
        if folder.is_dir():
            folder.chmod(0o755)
