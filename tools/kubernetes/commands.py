"""Command lines of manifests: whether the program takes them, and whether a server becomes ready with them."""

import os
import re
import secrets
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

from manifests import containers

# How long a server may take to become ready. The machine may be busy.
LIMIT = 90


def check_commands(documents: list[dict], program: Path) -> list[str]:
    """What the program has against the command lines of documents, as sentences."""
    wrong = []
    for document in documents:
        for container in containers(document):
            if container.get("command", [])[:1] != ["causeway"]:
                continue
            arguments = [*container["command"][1:], *container.get("args", [])]
            # Help is printed only where all that stands before it makes sense.
            done = subprocess.run([program, *arguments, "--help"], capture_output=True, text=True, env=environment(container))
            if done.returncode != 0:
                wrong.append(f"container {container['name']}: {done.stderr.strip()}")
    return wrong


def environment(container: dict) -> dict[str, str]:
    """The variables of a container, in place of ours."""
    own = {name: value for name, value in os.environ.items() if not name.startswith(("CAUSEWAY_", "CUDA_"))}
    return own | {variable["name"]: variable["value"] for variable in container.get("env", [])}


def free_port() -> int:
    """A port at which no process listens."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def serve(documents: list[dict], program: Path) -> list[str]:
    """Starts the server of the documents with the software GPU, its key in a Secret as the kubelet mounts it, and waits until
    its readiness probe succeeds; what is wrong otherwise."""
    [container] = [found for document in documents for found in containers(document) if found["name"] == "server"]
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        secret = root / "run/causeway/keys"
        (secret / "..data_1").mkdir(parents=True)
        (secret / "..data").symlink_to("..data_1")
        (secret / "key").symlink_to("..data/key")
        (secret / "..data/key").write_text(secrets.token_hex(32))
        (secret / "..data/key").chmod(0o400)
        (root / "var/cache").mkdir(parents=True)
        arguments = [re.sub(r"=/", f"={folder}/", word) for word in container["args"]]
        arguments = [re.sub(r"^--listen=.*", "--listen=127.0.0.1:0", word) for word in arguments]
        arguments = [re.sub(r"^--metrics=.*", f"--metrics=127.0.0.1:{port}", word) for word in arguments]
        process = subprocess.Popen(
            [program, *arguments, "--gpu=cpu"], env=environment(container), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        try:
            path = container["readinessProbe"]["httpGet"]["path"]
            if is_ready(f"http://127.0.0.1:{port}{path}", process):
                return []
        finally:
            process.kill()
            output, _ = process.communicate()
        return [f"the server of the manifests does not become ready:\n{output}"]


def is_ready(url: str, process: subprocess.Popen) -> bool:
    """Whether an address answers that all is well, before the process ends or it takes too long."""
    end = time.monotonic() + LIMIT
    while time.monotonic() < end and process.poll() is None:
        try:
            with urllib.request.urlopen(url, timeout=10):
                return True
        except (urllib.error.URLError, OSError):
            time.sleep(0.1)
    return False
