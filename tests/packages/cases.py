"""What is installed, where, and what must work then."""

import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import book
from roots import Failed, booted, fresh, inside, must

ROOT = book.ROOT
TREE = ROOT / "build/portable/x86_64"
MADE = ROOT / "build/packages"
# A CUDA program that runs on the oldest of them, too.
PROGRAM = ROOT / "build/portable/program"
COMPILE = """
source scripts/zig.sh && install_zig && zig cc -target x86_64-linux-gnu.2.28 -O2 tests/cuda/driver_api.c -o {program} \\
    -I"$cache/cuda-13.0/nvidia/cu13/include" -Itests/cuda -L{tree}/lib/causeway -lcuda
"""
SUITES = ("bullseye", "bookworm", "trixie")
PASSED = "PASS program"


def compiled() -> Path:
    """The CUDA program."""
    if not PROGRAM.exists():
        must(["bash", "-c", COMPILE.format(program=PROGRAM, tree=TREE)], cwd=ROOT)
    return PROGRAM


def put(root: Path, *patterns: str) -> None:
    """Copies what has been made, and a CUDA program, into the home of a root's user."""
    home = root / "root"
    shutil.copy(compiled(), home / "program")
    for pattern in patterns:
        files = sorted(MADE.glob(pattern))
        if not files:
            raise Failed(f"{MADE} has no {pattern}: run make packages")
        for file in files:
            shutil.copy(file, home)


def took(printed: str, *expected: str) -> str:
    """How long the commands of the book took; they must have printed what is expected."""
    for text in expected:
        if text not in printed:
            raise Failed(f"this is not said: {text}\n{printed}")
    return f"the book's commands took {float(re.findall(r'^took (.+)$', printed, re.MULTILINE)[-1]):.1f} s"


def portable() -> str:
    """Program and libraries run on each release."""
    for suite in SUITES:
        with fresh(suite) as root:
            shutil.copytree(TREE, root / "opt/causeway", symlinks=True)
            put(root)
            printed = inside(
                root, "cd /root; ldd --version | head -n 1; /opt/causeway/bin/causeway demo -- ./program"
            )
            if PASSED not in printed:
                raise Failed(f"{suite}: {printed}")
    return f"on Debian's {', '.join(SUITES)}"


SERVE = (
    "causeway serve --gpu cpu >/root/said 2>&1 & until grep -q '^causeway:' /root/said; do sleep 0.1; done\n"
)


def wheel() -> str:
    """A new virtual environment uses a server."""
    with fresh("bookworm", "python3-venv") as root:
        put(root, "*.whl")
        shutil.copytree(TREE, root / "opt/causeway", symlinks=True)
        before = f"PATH=/opt/causeway/bin:$PATH\n{SERVE}"
        after = "python3 -c 'import subprocess; subprocess.run([\"./program\"], check=True)'"
        return took(
            inside(root, book.script("bare-wheel", "/root/.config/causeway/key", before, after)), PASSED
        )


def deb() -> str:
    """A machine with systemd serves, and is a client."""
    with fresh("bookworm", "systemd", "systemd-sysv", "dbus") as root:
        put(root, "*.deb")
        # There is no GPU.
        settings = root / "etc/causeway"
        settings.mkdir()
        (settings / "test.toml").write_text('[serve]\ngpu = "cpu"\n')
        after = (
            "systemd-analyze verify --man=no causeway.service\n"
            "systemctl show causeway --property=ActiveState,NotifyAccess,LimitMEMLOCK\n"
            "journalctl --unit causeway --no-pager | tail -n 20\n"
            "ldconfig -p | grep 'libcuda.so.1 '\n"
            "causeway devices --on unix:/run/causeway/server.sock\n"
            "apt remove -y causeway-server causeway-client causeway-client-system\n"
            "! systemctl is-active causeway && ! ldconfig -p | grep 'libcuda.so.1 '"
        )
        printed = booted(root, book.script("bare-deb", "/etc/causeway/key", "", after))
        if printed.count(PASSED) != 2:
            raise Failed(f"a program ran {printed.count(PASSED)} times of 2:\n{printed}")
        return took(printed, "ActiveState=active", "LimitMEMLOCK=infinity", "/usr/lib/causeway/libcuda.so.1")


def rpm() -> str:
    """The packages of rpm are installed into a root, and run there."""
    with fresh("bookworm") as root:
        put(root)
        text = "\n".join(book.here(command, "") for command in book.commands("bare-rpm"))
        [install] = [line for line in text.splitlines() if line.startswith("rpm ")]
        # There is no rpm in the root, and its glibc is dpkg's.
        install = install.replace("rpm ", f"rpm --root {root} --nodeps ", 1)
        must(["bash", "-c", install], cwd=MADE)
        printed = inside(
            root,
            "cd /root; causeway --version; causeway run --on software -- ./program; ls -l /usr/lib/systemd/system/causeway*",
        )
        if PASSED not in printed or "causeway.service" not in printed:
            raise Failed(printed)
        verified = subprocess.run(
            ["rpm", "--root", root, "--verify", "--nodeps", "causeway-client"], capture_output=True, text=True
        )
        if verified.returncode != 0:
            raise Failed(f"rpm finds other files than it has installed: {verified.stdout}")
    return "installed by `rpm --root` into a root of Debian"


def archive() -> str:
    """The archive is unpacked anywhere."""
    with fresh("bullseye") as root:
        put(root, "causeway-*-x86_64.tar.gz")
        after = "~/software/causeway-*/bin/causeway run --on software -- ./program"
        return took(inside(root, book.script("bare-archive", "", "", after)), PASSED)


MODULE = """
. {init}
module use {folder}/share/modulefiles
module load causeway
causeway --version
case $LD_LIBRARY_PATH in */lib/causeway*) ;; *) echo "the libraries are not found: $LD_LIBRARY_PATH"; exit 1 ;; esac
man --path | grep -q share/man || true
module unload causeway
case $LD_LIBRARY_PATH in */lib/causeway*) echo "the libraries are found still: $LD_LIBRARY_PATH"; exit 1 ;; esac
"""


def module() -> str:
    """The module file of the archive, by Lmod."""
    init = Path("/usr/share/lmod/lmod/init/bash")
    if not init.exists():
        raise Failed("there is no Lmod here: apt install lmod")
    with tempfile.TemporaryDirectory() as name:
        [made] = MADE.glob("causeway-*-x86_64.tar.gz")
        must(["tar", "-xzf", made, "-C", name])
        [folder] = Path(name).iterdir()
        printed = must(["bash", "-c", "set -e\n" + MODULE.format(init=init, folder=folder)])
        if "causeway " not in printed:
            raise Failed(printed)
    return printed.splitlines()[0]


PODMAN = "podman --root {folder}/images --runroot {folder}/run --cgroup-manager cgroupfs --runtime runc"
# A machine whose root may not raise limits.
LIMITS = ["--ulimit", "nofile=20000:20000", "--ulimit", "nproc=32768:32768"]


def image() -> str:
    """A server of one image, a client of the other, and a container that knows nothing of either and asks
    for a device, all by podman."""
    with tempfile.TemporaryDirectory(prefix="causeway-images-") as name:
        podman = PODMAN.format(folder=name).split()
        names = {}
        for kind in ("server", "client"):
            [file] = MADE.glob(f"causeway-{kind}-*-image.tar")
            must([*podman, "load", "--quiet", "--input", file])
            names[kind] = f"localhost/causeway-{kind}:{file.name.split('-')[2]}"
        shared = Path(name, "shared")
        shared.mkdir()
        socket = f"unix:{shared}/server.sock"
        run = [*podman, "run", *LIMITS, "--network", "none", "--rm", "--volume", f"{shared}:{shared}"]
        serve = [*run, "--name", "server", "--detach", names["server"], "--listen", socket, "--gpu", "cpu"]
        try:
            must(serve)
            wait = f"for i in $(seq 300); do [ -S {shared}/server.sock ] && exit; sleep 0.1; done; exit 1"
            must(["bash", "-c", wait])
            program = [
                "--volume",
                f"{compiled()}:/program:ro",
                "--env",
                f"CAUSEWAY_ON={socket}",
                names["client"],
            ]
            if PASSED not in must([*run, *program, "/program"]):
                raise Failed("the program of the client's image did not run")
            by_device(podman, name, socket)
        finally:
            subprocess.run([*podman, "rm", "--force", "server"], capture_output=True)
            # Podman leaves a mount of its folder for images on itself.
            subprocess.run(["umount", f"{name}/images/overlay"], capture_output=True)
    return "server and client by podman, and a device of CDI in an image that is bare"


def by_device(podman: list[str], name: str, socket: str) -> None:
    """A program in a bare root gets a device."""
    description = Path("/run/cdi/causeway-test.json")
    must(
        [
            TREE / "bin/causeway",
            "cdi",
            "generate",
            "--on",
            socket,
            "--output",
            description,
            "--key-folder",
            f"{name}/keys",
        ]
    )
    try:
        with fresh("bullseye") as root:
            device = [
                *podman,
                "run",
                *LIMITS,
                "--network",
                "none",
                "--rm",
                "--device",
                "causeway.dev/gpu=server",
            ]
            printed = must([*device, "--volume", f"{compiled()}:/program:ro", "--rootfs", root, "/program"])
    finally:
        description.unlink()
    if PASSED not in printed:
        raise Failed(f"a container with a device did not use it:\n{printed}")


ALL = {
    "portable": portable,
    "wheel": wheel,
    "deb": deb,
    "rpm": rpm,
    "archive": archive,
    "module": module,
    "image": image,
}
