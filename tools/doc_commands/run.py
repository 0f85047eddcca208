"""Running the commands of a file, one after the other, in one shell, in a folder and a home that are new."""

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
from pathlib import Path

from blocks import RUN, SERVER, Command

# Seconds that all commands of a file may take: a limit for what hangs, on a machine that is busy with other tests.
LIMIT = 300

SHELL = r"""
set -eE -o pipefail
at=0
trap 'status=$?; echo "the command of line $at ended with status $status" >&2; exit 99' ERR
start_server() {  # FILE COMMAND: in the background, until it says where it listens
    bash -c "exec $2" >"$1" 2>"$1.log" </dev/null &
    for _ in $(seq 600); do
        if grep -q '^\(causeway\|unix\):' "$1"; then return; fi
        if ! kill -0 $! 2>/dev/null; then break; fi
        sleep 0.1
    done
    cat "$1.log" >&2
    return 1
}
"""


def free_port() -> int:
    """A port of this machine that nobody listens at."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def without_remark(text: str) -> str:
    """The command without what stands behind a `#`, which would swallow what is put behind it here."""
    return re.sub(r"\s#\s.*$", "", text)


def here(text: str, port: int, folder: Path) -> str:
    """The command as it is run here: the names of other machines and of system folders mean something in this one."""
    text = text.replace("0.0.0.0", f"127.0.0.1:{port}").replace("gpu-box", f"127.0.0.1:{port}")
    text = text.replace("/run/causeway/", f"{folder}/").replace("/shared", f"{folder}")
    if text.startswith("causeway serve"):
        if "--gpu" not in text:
            text = text.replace("causeway serve", "causeway serve --gpu cpu", 1)
        if "--listen" not in text:
            text = f"{without_remark(text)} --listen 127.0.0.1:{port}"
    # It ends with 1 where it finds a problem of this machine, which is no matter here.
    if text.startswith("causeway doctor"):
        text = f"{{ {without_remark(text)}; }} || [ $? = 1 ]"
    # What a person pastes.
    if re.match(r"causeway key add\b", text):
        key = r"$(causeway key show | sed -n 's|.*causeway://\([^@]*\)@.*|\1|p' | head -n 1)"
        text = f'echo "causeway://{key}@127.0.0.1:{port}" | {text}'
    return text


def script(commands: list[Command], port: int, folder: Path) -> str:
    """The commands as a script for bash, which stops at the first that fails."""
    lines = [SHELL]
    for number, command in enumerate(commands):
        text = here(command.text, port, folder)
        lines.append(f"at={command.line}")
        if command.how == SERVER:
            lines.append(f"start_server {folder}/server{number} '{without_remark(text)}'")
        elif command.how == RUN:
            lines.append(text)
    return "\n".join(lines) + "\n"


def run(root: Path, causeway: Path, commands: list[Command]) -> str | None:
    """Runs the commands of a file; what went wrong, with what was printed, if anything did."""
    with tempfile.TemporaryDirectory(prefix="causeway-documents-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        for place in ("bin", "home", "work"):
            (folder / place).mkdir(mode=0o700)
        (folder / "bin/causeway").symlink_to(causeway.resolve())
        for seen in ("examples", "build"):
            (folder / "work" / seen).symlink_to(root / seen)
        shutil.copy(root / "build/cuda/vector_add", folder / "work/program")
        compiler = Path(os.environ.get("CAUSEWAY_CACHE", Path.home() / ".cache/causeway")) / "cuda-13.0/nvidia/cu13/bin"
        environment = {
            "HOME": str(folder / "home"),
            "PATH": f"{folder / 'bin'}:{compiler}:{os.environ['PATH']}",
            "TMPDIR": str(folder),
        }
        process = subprocess.Popen(
            ["bash", "-c", script(commands, free_port(), folder)],
            cwd=folder / "work",
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        try:
            output, _ = process.communicate(timeout=LIMIT)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            output, _ = process.communicate()
            output += f"\nthe commands did not end within {LIMIT} s"
        finally:
            # The servers are of the same group.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
        return output if process.returncode != 0 else None
