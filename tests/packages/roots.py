"""Bare roots: a Debian of nothing but what every Debian has, and what is done in one."""

import contextlib
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

CACHE = Path(os.environ.get("CAUSEWAY_CACHE", Path.home() / ".cache/causeway")) / "roots"
MIRROR = os.environ.get("DEBIAN_MIRROR", "http://deb.debian.org/debian")
# Seconds: a limit for what hangs.
LIMIT = 900


class Failed(Exception):
    """Something did not do what it should."""


def must(command: list, **more) -> str:
    """Runs a command that must succeed; what it printed."""
    done = subprocess.run(
        list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
        timeout=LIMIT, stdin=subprocess.DEVNULL, **more,
    )  # fmt: skip
    if done.returncode != 0:
        raise Failed(f"{' '.join(map(str, command))} ended with {done.returncode}:\n{done.stdout}")
    return done.stdout


def base(suite: str, *packages: str) -> Path:
    """A root of a release with some packages, made once."""
    path = CACHE / "-".join([suite, *packages])
    if not path.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        made = Path(f"{path}.making")
        must(["rm", "-rf", made])
        names = [f"--include={','.join(packages)}"] if packages else []
        must(["debootstrap", "--variant=minbase", *names, suite, made, MIRROR])
        made.rename(path)
    return path


@contextlib.contextmanager
def fresh(suite: str, *packages: str) -> Iterator[Path]:
    """A new root, which is as the release is, and is gone afterwards."""
    lower = base(suite, *packages)
    with tempfile.TemporaryDirectory(prefix="causeway-root-", dir=CACHE) as name:
        folder = Path(name)
        for part in ("upper", "work", "root"):
            (folder / part).mkdir()
        options = f"lowerdir={lower},upperdir={folder}/upper,workdir={folder}/work"
        must(["mount", "-t", "overlay", "overlay", "-o", options, folder / "root"])
        try:
            yield folder / "root"
        finally:
            must(["umount", folder / "root"])


NSPAWN = [
    "systemd-nspawn",
    "--quiet",
    "--register=no",
    "--keep-unit",
    "--private-network",
    "--link-journal=no",
]


def inside(root: Path, script: str) -> str:
    """Runs a script in a root, with a network of its own; what it printed."""
    (root / "root/script").write_text(script, encoding="utf-8")
    return must([*NSPAWN, "--pipe", "-D", root, "/bin/bash", "/root/script"])


UNIT = """\
[Unit]
Description=What is to be tested
After=multi-user.target
[Service]
Type=oneshot
ExecStart=/bin/sh -c '/bin/bash /root/script >/root/said 2>&1; echo $? >/root/status; systemctl --no-block poweroff'
"""


def booted(root: Path, script: str) -> str:
    """Starts the root as a machine with systemd, runs a script on it and switches it off; what it printed."""
    (root / "root/script").write_text(script, encoding="utf-8")
    units = root / "etc/systemd/system"
    (units / "script.service").write_text(UNIT, encoding="utf-8")
    wants = units / "default.target.wants"
    wants.mkdir(exist_ok=True)
    (wants / "script.service").symlink_to("../script.service")
    console = must([*NSPAWN, "--boot", "--console=pipe", "-D", root])
    status, said = root / "root/status", root / "root/said"
    printed = said.read_text(errors="replace") if said.exists() else console
    if not status.exists() or status.read_text().strip() != "0":
        raise Failed(f"the script did not succeed:\n{printed}")
    return printed
