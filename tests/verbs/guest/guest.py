#!/usr/bin/env python3
"""Runs a command on a Linux kernel with RDMA devices, on a machine that has none.

The kernel is Debian's, built as an ordinary program (User Mode Linux). In it, libibverbs and librdmacm meet the kernel's own
verbs and rdma_cm, and its software devices: `rxe` (RoCE v2 over UDP) and `siw` (iWARP over TCP).

    guest.py build                        install the Debian packages and build the kernel; nothing to do the second time
    guest.py ready                        whether it is built
    guest.py run [OPTIONS] -- COMMAND...  one guest with hosts h1, h2 ...: network namespaces, each with its own device
    guest.py pair [OPTIONS] COMMAND COMMAND
                                          two guests, a wire between them, a shell command in each

README.md says what the command finds in the guest.
"""

import argparse
import hashlib
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
SOURCE_TREE = HERE.parents[2]
CACHE = Path(os.environ.get("CAUSEWAY_CACHE") or Path.home() / ".cache/causeway") / "verbs-guest"
KERNEL = CACHE / "linux"
KEY = CACHE / "key"

KERNEL_SOURCE = "linux-source-6.12"
TO_BUILD = ["gcc", "make", "flex", "bison", "bc", "libc6-dev", "xz-utils", "patch"]
TO_RUN = ["rdma-core", "ibverbs-providers", "librdmacm1", "ibverbs-utils", "rdmacm-utils", "perftest"]
TO_RUN += ["iproute2", "busybox-static", "procps", "gcc", "libc6-dev", "libibverbs-dev"]

# Variables that mean something else in the guest, or nothing.
NOT_PASSED_ON = {"PWD", "OLDPWD", "SHLVL", "TMPDIR", "_"}


class Trouble(Exception):
    """Why there is no guest, as a sentence."""


def sources():
    """The configuration of the kernel, and the patches in their order."""
    return [HERE / "kernel.config", *sorted((HERE / "patches").glob("*.patch"))]


def key():
    """Names a kernel by everything that it is made from."""
    return hashlib.sha256(KERNEL_SOURCE.encode() + b"".join(path.read_bytes() for path in sources())).hexdigest()


def is_ready():
    return KERNEL.is_file() and KEY.is_file() and KEY.read_text() == key()


def build():
    subprocess.run([SOURCE_TREE / "scripts/install-packages.sh", *TO_RUN], check=True)
    if is_ready():
        return
    subprocess.run([SOURCE_TREE / "scripts/install-packages.sh", *TO_BUILD], check=True)
    CACHE.mkdir(parents=True, exist_ok=True)
    log = CACHE / "build.log"
    print(f"building the guest's kernel: some 8 minutes with two cores, once ({log})", file=sys.stderr)
    config, *patches = sources()
    patching = "\n".join(f"patch -p1 -s <{shlex.quote(str(path))}" for path in patches)
    script = f"""
        set -ex
        apt-get download {KERNEL_SOURCE} || {{ apt-get update -qq; apt-get download {KERNEL_SOURCE}; }}
        dpkg-deb --fsys-tarfile {KERNEL_SOURCE}_*.deb | tar xO ./usr/src/{KERNEL_SOURCE}.tar.xz | tar xJ
        cd {KERNEL_SOURCE}
        {patching}
        make -s ARCH=um defconfig
        scripts/kconfig/merge_config.sh -m .config {shlex.quote(str(config))}
        make -s ARCH=um olddefconfig
        make -s ARCH=um -j{os.cpu_count()} linux
        strip -o ../stripped linux
    """
    # Kept beside the cache: half a gigabyte is too much for many a /tmp.
    with tempfile.TemporaryDirectory(dir=CACHE) as folder, open(log, "w") as output:
        steps = subprocess.run(["bash", "-c", script], cwd=folder, stdout=output, stderr=output)
        if steps.returncode:
            lines = "\n".join(log.read_text().splitlines()[-20:])
            raise Trouble(f"the kernel could not be built; {log} ends with\n{lines}")
        shutil.move(Path(folder) / "stripped", KERNEL)
        KEY.write_text(key())


class Guest:
    """A guest that runs one shell command. It and this process talk through files in a folder that both see."""

    def __init__(self, folder, command, options, number=None, wire=None):
        self.folder = folder
        folder.mkdir()
        shutil.copy(HERE / "init", folder / "init")
        # The guest has a /tmp of its own, which hides a source tree that lies there.
        hidden_tree = SOURCE_TREE if SOURCE_TREE.is_relative_to("/tmp") else ""
        settings = {
            "hosts": options.hosts,
            "mtu": options.mtu,
            "device": options.device,
            "number": "" if number is None else number,
            "writable": os.getcwd() if os.getcwd() not in ("/", "/tmp") else "",
            "hidden_tree": hidden_tree,
            "working_folder": os.getcwd(),
        }
        (folder / "settings").write_text(shell_variables(settings))
        environment = {name: value for name, value in os.environ.items() if name not in NOT_PASSED_ON}
        (folder / "environment").write_text(shell_variables(environment))
        (folder / "command").write_text(command + "\n")
        # Programs that time by the processor's counter look its rate up here; the guest's own table has none.
        (folder / "cpuinfo").write_text(Path("/proc/cpuinfo").read_text().split("\n\n")[0] + "\n")
        self.outputs = []
        for name, descriptor in [("stdout", sys.stdout.fileno()), ("stderr", sys.stderr.fileno())]:
            (folder / name).touch()
            self.outputs.append((open(folder / name, "rb"), descriptor))  # noqa: SIM115 - open as long as it runs
        words = [KERNEL, f"mem={options.memory}", "root=none", "rootfstype=hostfs", "rootflags=/", "ro"]
        words += [f"init={folder}/init", f"GUEST_FOLDER={folder}", f"uml_dir={folder}/uml", "umid=guest"]
        words += ["con=null", "ssl=null", "con0=null,fd:1", "quiet", "loglevel=3", "random.trust_bootloader=on"]
        if wire is not None:
            address = f"02:00:00:00:01:{number:02x}"
            words.append(f"vec0:transport=fd,fd={wire.fileno()},mac={address},mtu={options.mtu},gro=0,depth=256")
        with open(folder / "console", "wb") as console:
            self.process = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=console,
                pass_fds=[wire.fileno()] if wire is not None else [],
                # Ctrl-C is for this process, which ends the guest in order.
                start_new_session=True,
            )

    def relay(self):
        """Hands on what the command has written since the last time."""
        for file, descriptor in self.outputs:
            while piece := file.read(65536):
                os.write(descriptor, piece)

    def status(self):
        """The exit status of the command, once the guest has ended."""
        try:
            return int((self.folder / "status").read_text())
        except (OSError, ValueError):
            logs = [self.folder / "network", self.folder / "console"]
            lines = [line for log in logs if log.exists() for line in log.read_text(errors="replace").splitlines()[-20:]]
            raise Trouble("the guest ended before its command did; it said:\n" + "\n".join(lines)) from None

    def end(self):
        if self.process.poll() is None:
            # The kernel's helpers are in its process group.
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


def shell_variables(values):
    """Assignments that a shell can read; names that no shell could use are left out."""
    named = ((name, value) for name, value in values.items() if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name))
    return "".join(f"{name}={shlex.quote(str(value))}\n" for name, value in named)


def wait(guests, seconds):
    """Relays the guests' output until all have ended; the first exit status that is not 0."""
    limit = time.monotonic() + seconds if seconds else float("inf")
    while any(guest.process.poll() is None for guest in guests):
        for guest in guests:
            guest.relay()
        if time.monotonic() > limit:
            print(f"guest: ended after {seconds:g} s", file=sys.stderr)
            return 124
        time.sleep(0.02)
    for guest in guests:
        guest.relay()
    return next((status for guest in guests if (status := guest.status())), 0)


def start(options):
    """Starts what was asked for and returns its exit status."""
    if not is_ready():
        raise Trouble("the guest is not built: `make verbs-guest` builds it")
    guests = []
    with tempfile.TemporaryDirectory(prefix="causeway-guest-") as folder:
        folder = Path(folder)
        try:
            if options.action == "run":
                words = [word for word in options.command if word != "--" or word is not options.command[0]]
                # One word is a shell command, several are a program and its arguments.
                command = words[0] if len(words) == 1 else shlex.join(words)
                guests.append(Guest(folder / "1", command, options))
            else:
                for number, wire in enumerate(joined_sockets(), start=1):
                    with wire:
                        command = options.command[number - 1]
                        guests.append(Guest(folder / str(number), command, options, number, wire))
            return wait(guests, options.timeout)
        finally:
            for guest in guests:
                guest.end()


def joined_sockets():
    """The two ends of the wire between two guests: each packet is a frame."""
    ends = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    for end in ends:
        for buffer in (socket.SO_SNDBUF, socket.SO_RCVBUF):
            end.setsockopt(socket.SOL_SOCKET, buffer, 4 << 20)
    return ends


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    actions = parser.add_subparsers(dest="action", required=True)
    actions.add_parser("build")
    actions.add_parser("ready")
    for name, count in [("run", argparse.REMAINDER), ("pair", 2)]:
        action = actions.add_parser(name)
        action.add_argument("--hosts", type=int, default=2, help="hosts in the one guest")
        action.add_argument("--device", choices=["rxe", "siw"], default="rxe")
        action.add_argument("--mtu", type=int, default=4200, help="of the wire; 4200 has room for RoCE's 4096")
        action.add_argument("--memory", default="4G")
        action.add_argument("--timeout", type=float, metavar="SECONDS", help="end the guest then, with status 124")
        action.add_argument("command", nargs=count)
    return parser.parse_args()


def main():
    options = arguments()
    # So that whoever ends this process, as `timeout` does, ends its guests with it: each would use up a processor for good.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    try:
        if options.action == "build":
            build()
            return 0
        if options.action == "ready":
            return 0 if is_ready() else 1
        return start(options)
    except Trouble as trouble:
        print(f"guest: {trouble}", file=sys.stderr)
        return 125
    except subprocess.CalledProcessError:
        # The program that failed has said why.
        return 125
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
