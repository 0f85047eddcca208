"""Which packages are there, what is in each, and what a package needs: the same for Debian's and for Red
Hat's.

| package | for |
| --- | --- |
| `causeway` | the program, its manual, completions |
| `causeway-client` | the libraries that programs find by `causeway run` |
| `causeway-client-system` | lets every program of the machine find them, where there is no driver of NVIDIA's |
| `causeway-server` | the service |
| `causeway-mpi` | `causeway mpirun`'s interposers and `causeway bench mpi`'s programs, for each MPI |
| `causeway-dev` | headers, pkg-config, CMake, what kernels link, Python's modules, examples |
| `causeway-slurm` | a SPANK plugin as source, scripts of slurmctld |
| `causeway-monitoring` | a dashboard and alerts, and `fabric-perf` |
"""

import gzip
from dataclasses import dataclass, field
from pathlib import Path

import layout
from layout import LIBRARIES, LINKS, install

HOME = "https://github.com/causeway-gpu/causeway"
MAINTAINER = "The Causeway developers <causeway@users.noreply.github.com>"
# What the files need, as `check` has found.
GLIBC = "2.28"


# What the service has made, for a shell: it is removed with the last trace of a package, which is Debian's `purge` and the
# removal of an RPM package. Caches; secrets: the key that the service has made, the keys of its clients, and drafts of both
# that a crash has left. What an administrator has written besides stays.
REMOVE_STATE = """\
rm -rf /var/cache/causeway /run/causeway
rm -f /etc/causeway/key /etc/causeway/clients.toml /etc/causeway/clients.lock
rm -f /etc/causeway/key.new-???????????????? /etc/causeway/clients.new-????????????????
rmdir --ignore-fail-on-non-empty /etc/causeway 2>/dev/null || true
"""


@dataclass(frozen=True)
class Package:
    """A package, and where its files are."""

    name: str
    summary: str
    description: str
    needs: tuple[str, ...] = ()
    # Files that the administrator may change.
    settings: tuple[str, ...] = ()
    # Where each lies, and the file that it is made of, or its content.
    files: dict[str, Path | bytes] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)


# How the names of files end that are among programs and libraries and are neither.
DATA = (".ltoir", ".bc")

# What the plugin for Slurm is compiled from, and what slurmctld is to have beside slurm.conf.
SLURM_SOURCES = ("causeway_spank.c", "job_submit.lua")
SLURM_SCRIPTS = ("slurmctld-script", "build-plugin")

# Where shells look for completions.
COMPLETIONS = {
    "bash": "/usr/share/bash-completion/completions/causeway",
    "zsh": "/usr/share/zsh/{zsh}/_causeway",
    "fish": "/usr/share/fish/vendor_completions.d/causeway.fish",
}


def packages(tree: Path, root: Path, said: Path, zsh: str, version: str) -> list[Package]:
    """The packages, from a tree and the files of `packaging`. `said` is a folder with manual pages and
    completions, `zsh` where a system's zsh has those of packages."""
    layout.must_have_all(tree)
    sources = {f"/usr/{place}": content for place, content in layout.sources(root, version).items()}
    monitoring = {path for path in sources if path.startswith("/usr/share/causeway/monitoring/")}
    kubernetes = {path for path in sources if path.startswith("/usr/share/causeway/kubernetes/")}
    parts = {f"/usr/lib/causeway/{name}": tree / "lib/causeway" / name for name in layout.parts(tree)}
    mpi = {path for path in parts if path.startswith("/usr/lib/causeway/mpi/")}
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
            " `causeway run`. Where NVIDIA's driver is installed, programs keep that.",
            needs=("causeway-client",),
            files={
                "/usr/share/causeway/ld.so.conf": ours / "client/causeway.conf",
                "/usr/lib/causeway/for-every-program": ours / "client/for-every-program",
            }
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
            | {path: sources[path] for path in sorted(kubernetes)}
            | documents("causeway-server", root),
        ),
        Package(
            "causeway-mpi",
            "messages between GPUs in MPI programs",
            "The libraries by which `causeway mpirun` lets unmodified programs of Open MPI 4, Open MPI 5 and MPICH send memory on"
            " GPUs, and the programs of `causeway bench mpi`. The MPI is not in it.",
            needs=("causeway", "causeway-client"),
            files={path: parts[path] for path in sorted(mpi)} | documents("causeway-mpi", root),
        ),
        Package(
            "causeway-dev",
            "headers for kernels that communicate and messages between GPUs",
            "The headers <causeway/...> with files for pkg-config and CMake, what kernels of Numba and Triton link, modules for"
            " Python, the program of `causeway bench device`, and examples.",
            needs=("causeway", "causeway-client"),
            files={path: sources[path] for path in sorted(sources.keys() - monitoring - kubernetes)}
            | {path: parts[path] for path in sorted(parts.keys() - mpi)}
            | documents("causeway-dev", root),
        ),
        Package(
            "causeway-slurm",
            "jobs of Slurm get GPUs of a pool of Causeway servers",
            "`srun --rgpu=N`: a SPANK plugin, as source, for a plugin belongs to one release of Slurm; the script that acquires GPUs"
            " of the pool when a job begins and releases them when it ends; licences for jobs that wait. Slurm is not in it.",
            needs=("causeway", "causeway-client"),
            files={f"/usr/lib/causeway/slurm/{name}": ours / "slurm" / name for name in SLURM_SCRIPTS}
            | {f"/usr/share/causeway/slurm/{name}": ours / "slurm" / name for name in SLURM_SOURCES}
            | documents("causeway-slurm", root),
        ),
        Package(
            "causeway-monitoring",
            "Grafana dashboard and alerts for Causeway servers, and fabric-perf",
            "A dashboard for Grafana, alerts for Prometheus, and fabric-perf, which measures two RDMA devices and Causeway's links"
            " between them.",
            files={path: sources[path] for path in sorted(monitoring)}
            | {f"/usr/bin/{name}": tree / "bin" / name for name in layout.TOOLS}
            | documents("causeway-monitoring", root),
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
        if path.startswith(("/usr/bin/", "/usr/lib/causeway/")) and not path.endswith(DATA):
            install(source, target)
            continue
        content = source if isinstance(source, bytes) else source.read_bytes()
        target.write_bytes(gzip.compress(content, mtime=0) if path.endswith(".gz") else content)
        target.chmod(0o644)
    for path, target in package.links.items():
        link = place / path.lstrip("/")
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(target)
    for folder in [place, *place.rglob("*")]:
        if folder.is_dir():
            folder.chmod(0o755)
