"""What is installed, where, and what must work then."""

import os
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
            "[ -s /etc/causeway/key ]\n"
            # What lists the clients is no configuration: neither the server nor another user stumbles over it.
            "causeway client add ada --days 90 >/dev/null && [ -s /etc/causeway/clients.toml ]\n"
            "systemctl restart causeway && causeway devices --on unix:/run/causeway/server.sock\n"
            "runuser -u nobody -- env CAUSEWAY_ON= causeway config show\n"
            "apt purge -y causeway-server causeway-client causeway-client-system\n"
            "! systemctl is-active causeway && ! ldconfig -p | grep 'libcuda.so.1 '\n"
            "! [ -e /etc/causeway/key ] && ! [ -e /etc/causeway/clients.toml ] && ! [ -e /var/cache/causeway ] && ! [ -e /etc/ld.so.conf.d/000-causeway.conf ]"
        )
        printed = booted(root, book.script("bare-deb", "/etc/causeway/key", "", after))
        if printed.count(PASSED) != 2:
            raise Failed(f"a program ran {printed.count(PASSED)} times of 2:\n{printed}")
        [served] = re.findall(r"^\$ systemctl is-active causeway\nactive\nafter (.+) s$", printed, re.MULTILINE)
        said = took(printed, "ActiveState=active", "LimitMEMLOCK=infinity", "/usr/lib/causeway/libcuda.so.1")
        return f"{said}, and the service ran after {float(served):.1f} s"


UPGRADE = """
set -e -o pipefail
export HOME=/root LANG=C.UTF-8 DEBIAN_FRONTEND=noninteractive CAUSEWAY_ON=unix:/run/causeway/server.sock
cd /root
main() {{ systemctl show causeway --property=MainPID --value; }}
changed() {{ for i in $(seq 100); do [ "$(main)" = "$1" ] || return 0; sleep 0.1; done; echo "$1 is still the main process"; return 1; }}
dpkg --install causeway_*.deb causeway-server_*.deb causeway-client_*.deb
first=$(main)
causeway run -- ./over_a_restart work end >worked 2>&1 &
program=$!
until grep running worked; do sleep 0.1; done
# The same version again is an upgrade, as far as scripts of packages know.
dpkg --install causeway_*.deb causeway-server_*.deb
changed $first
second=$(main)
causeway run -- ./program
causeway sessions --on $CAUSEWAY_ON >listed && grep over_a_restart listed
# Longer than systemd waits for a sign of life of the main process.
sleep 6
[ "$(main)" = $second ]
# A newer release, and back to this one: the session goes on over both.
newer() {{
    dpkg-deb --raw-extract $1_[0-9]*.deb $1 && sed -i -E "s/^Version: .*/Version: 9999/; s/[(]= [0-9.]+/(= 9999/g" $1/DEBIAN/control
    dpkg-deb --root-owner-group --build $1 newer_$1.deb && rm -r $1
}}
for package in causeway causeway-server causeway-client; do newer $package; done
apt install -y ./newer_*.deb
[ "$(dpkg-query --show --showformat='${{Version}}' causeway-server)" = 9999 ]
changed $second
second=$(main)
apt install -y --allow-downgrades ./causeway_*.deb ./causeway-server_*.deb ./causeway-client_*.deb
! dpkg-query --show causeway-server | grep 9999
changed $second
second=$(main)
causeway sessions --on $CAUSEWAY_ON >listed && grep over_a_restart listed
causeway run -- ./program
# A configuration that is wrong changes nothing.
echo 'max-sessions = "many"' >>/etc/causeway/serve.toml
systemctl reload causeway && sleep 1
[ "$(main)" = $second ] && causeway run -- ./program
sed -i '$d' /etc/causeway/serve.toml
touch end && wait $program && cat worked
for i in $(seq 100); do [ -d /proc/$first ] || break; sleep 0.1; done
! [ -d /proc/$first ]
systemctl reload causeway && changed $second
[ "$(systemctl show causeway --property=NRestarts --value)" = 0 ]
systemctl stop causeway
! pgrep causeway
# A release that does not know how to hand over keeps no signal back, and is started again.
place=/etc/systemd/system/causeway.service.d/old.conf
printf '[Service]\\nNotifyAccess=all\\nWatchdogSec=0\\n' >$place && systemctl daemon-reload
install -m 755 old /usr/bin/causeway && systemctl start causeway && first=$(main)
rm $place && systemctl daemon-reload
! systemctl reload causeway && [ "$(main)" = $first ]
dpkg --install causeway_*.deb causeway-server_*.deb
[ "$(main)" != $first ] && causeway run -- ./program
echo sessions went on
"""
OLD = "#!/bin/bash\nsystemd-notify --ready\nexec sleep 1000\n"


def upgrade() -> str:
    """An upgrade of the service, under systemd, ends no session, nor does the way back."""
    with fresh("bookworm", "systemd", "systemd-sysv", "dbus", "procps") as root:
        put(root, "*.deb")
        shutil.copy(ROOT / "build/cuda/over_a_restart", root / "root")
        (root / "root/old").write_text(OLD)
        settings = root / "etc/causeway"
        settings.mkdir()
        (settings / "test.toml").write_text('[serve]\ngpu = "cpu"\n')
        limits = root / "etc/systemd/system/causeway.service.d"
        limits.mkdir(parents=True)
        (limits / "test.conf").write_text("[Service]\nWatchdogSec=4\n")
        printed = booted(root, UPGRADE.format())
        if "sessions went on" not in printed or printed.count(PASSED) != 4 or "PASS over_a_restart" not in printed:
            raise Failed(printed)
    return "by dpkg, apt and systemctl reload, from an older release and back to one, too"


def driver_package(folder: Path) -> Path:
    """A library that is found by the name of NVIDIA's, as Debian's package of that name."""
    place = folder / "libcuda1"
    library = place / "usr/lib/x86_64-linux-gnu/libcuda.so.1"
    library.parent.mkdir(parents=True)
    named = ["-Wl,-soname,libcuda.so.1", "-o", library]
    must(["cc", "-shared", "-nostdlib", *named, "-x", "c", "/dev/null"])
    (place / "DEBIAN").mkdir()
    about = "Package: libcuda1\nVersion: 1\nArchitecture: amd64\nMaintainer: a test <test@localhost>\nDescription: a test\n"
    (place / "DEBIAN/control").write_text(about)
    must(["dpkg-deb", "--root-owner-group", "--build", place, folder / "libcuda1.deb"])
    return folder / "libcuda1.deb"


WITH_DRIVER = """
set -e -o pipefail
export HOME=/root LANG=C.UTF-8 DEBIAN_FRONTEND=noninteractive
cd /root
is() {{
    # To the end: `ldconfig` must not find the pipe closed.
    found=$(ldconfig -p | awk '$1 == "libcuda.so.1" && !seen++ {{ print $NF }}')
    case $found in $1) ;; *) echo "programs find '$found', not $1"; exit 1 ;; esac
}}
ours=/usr/lib/causeway/libcuda.so.1 theirs="*/x86_64-linux-gnu/libcuda.so.1"
dpkg --install libcuda1.deb
{install} 2>&1 | tee said
grep -q "has NVIDIA's driver" said
is "$theirs"
# The driver goes, and comes again; programs follow.
dpkg --purge libcuda1
is "$ours"
dpkg --install libcuda1.deb
is "$theirs"
apt purge -y causeway-client-system
dpkg --purge libcuda1
! ldconfig -p | grep 'libcuda.so.1 '
echo programs keep the driver
"""


def driver() -> str:
    """README's line on a machine with NVIDIA's driver: its programs keep it."""
    [install] = [
        command.text
        for command in book.read((ROOT / "README.md").read_text(encoding="utf-8"))[0]
        if command.text.startswith("apt install")
    ]
    # There is nobody to ask.
    install = book.here(install, "").strip().replace("apt install", "apt install -y")
    with tempfile.TemporaryDirectory() as folder, fresh("bookworm") as root:
        put(root, "*.deb")
        shutil.copy(driver_package(Path(folder)), root / "root")
        printed = inside(root, WITH_DRIVER.format(install=install))
        if "programs keep the driver" not in printed:
            raise Failed(printed)
    return f"`{install}` beside a driver, which goes and comes again"


# An MPI of each kind that a distribution has, and what C programs are built with.
BUILDS = ("openmpi-bin", "mpich", "gcc", "libc6-dev", "make", "pkg-config", "cmake")
# Ranks are root's here, and more than the machine has cores.
RANKS = (
    "export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1\n"
    "export PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe\n"
)
# What is measured, and that messages went from GPU to GPU.
MEASURED = "causeway bench mpi --quick --kind latency --sizes 64K --memory gpu -- {launcher} | tee said && grep -q ipc said\n"


def five(root: Path) -> None:
    """Puts Open MPI 5 into a root, which has Debian's 4."""
    must(["bash", "-c", "source scripts/mpis.sh && install_mpi openmpi-5"], cwd=ROOT)
    cache = Path(os.environ.get("CAUSEWAY_CACHE", Path.home() / ".cache/causeway"))
    shutil.copytree(cache / "openmpi-5", root / "opt/openmpi-5", symlinks=True)


def mpi() -> str:
    """Ranks of three MPIs send memory on GPUs, with the interposer that belongs to each, of packages and archive."""
    with fresh("bookworm", *BUILDS) as root:
        put(root, "*.deb", "causeway-*-x86_64.tar.gz")
        five(root)
        after = (
            "for launcher in mpirun.openmpi mpirun.mpich; do\n"
            + MEASURED.format(launcher="$launcher")
            + "done\n"
            "export PATH=/opt/openmpi-5/bin:$PATH LD_LIBRARY_PATH=/opt/openmpi-5/lib\n"
            + MEASURED.format(launcher="mpirun")
            + "apt remove -y causeway-mpi\n"
            "! causeway mpirun -- mpirun -n 2 ./program 2>error\n"
            "grep 'no interposer for Open MPI 5 at .*: install the package causeway-mpi' error\n"
            # The archive's, in a folder of its own.
            "apt purge -y causeway causeway-client && [ ! -e /usr/lib/causeway ]\n"
            "tar -xzf causeway-*-x86_64.tar.gz && export PATH=$(echo /root/causeway-*-x86_64/bin):$PATH\n"
            + MEASURED.format(launcher="mpirun")
        )
        printed = inside(root, book.script("bare-mpi", "", RANKS, after))
        if printed.count(PASSED) != 2:
            raise Failed(f"a program ran {printed.count(PASSED)} times of 2:\n{printed}")
        return took(printed)


def dev() -> str:
    """A C program is built with the headers, by pkg-config and by CMake, of the packages and of the archive."""
    with fresh("bookworm", *BUILDS) as root:
        put(root, "*.deb", "causeway-*-x86_64.tar.gz")
        after = (
            "apt purge -y causeway causeway-client causeway-dev && [ ! -e /usr/include/causeway ]\n"
            "tar -xzf causeway-*-x86_64.tar.gz && rm -r team.c team build CMakeLists.txt\n"
            "place=$(echo /root/causeway-*-x86_64) && cp $place/share/causeway/examples/{team.c,CMakeLists.txt} .\n"
            "export PKG_CONFIG_PATH=$place/share/pkgconfig PATH=$place/bin:$PATH\n"
            "cc team.c $(pkg-config --cflags --libs causeway) -ldl -o team && causeway run --on software -- ./team\n"
            "cmake -B build -Dcauseway_ROOT=$place . && cmake --build build && causeway run --on software -- build/team\n"
        )
        printed = inside(root, book.script("bare-dev", "", "", after))
        if printed.count("PASS team") != 4:
            raise Failed(f"a program ran {printed.count('PASS team')} times of 4:\n{printed}")
        return took(printed)


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


# What a node has on which the plugin is compiled, and where users submit jobs.
NODE = ("slurm-client", "libslurm-dev", "gcc", "libc6-dev")
PLUGIN = """
set -e -o pipefail
export DEBIAN_FRONTEND=noninteractive
cd /root
apt install -y ./causeway_*.deb ./causeway-client_*.deb ./causeway-slurm_*.deb
/usr/lib/causeway/slurm/build-plugin
mkdir -p /etc/slurm
printf '%s\\n' ClusterName=test SlurmctldHost=localhost NodeName=localhost >/etc/slurm/slurm.conf
echo 'required /usr/lib/causeway/slurm/causeway_spank.so pool=gpus' >/etc/slurm/plugstack.conf
srun --help | grep -e --rgpu
srun --version
"""


def slurm() -> str:
    """The plugin is compiled with the headers of several releases of Slurm, whose `srun` loads it."""
    releases = []
    # Debian's 22.05 and 24.11, and the newest one that it has.
    for suite in ("bookworm", "trixie", "sid"):
        with fresh(suite, *NODE) as root:
            put(root, "*.deb")
            printed = inside(root, PLUGIN)
            releases += re.findall(r"^slurm(?:-wlm)? (\S+)$", printed, re.MULTILINE)
            if len(releases) != len(set(releases)) or "warning:" in printed.partition("build-plugin")[2]:
                raise Failed(printed)
    return f"`srun --rgpu` of Slurm {', '.join(releases)}"


ALL = {
    "portable": portable,
    "wheel": wheel,
    "deb": deb,
    "upgrade": upgrade,
    "driver": driver,
    "mpi": mpi,
    "dev": dev,
    "rpm": rpm,
    "archive": archive,
    "module": module,
    "image": image,
    "slurm": slurm,
}
