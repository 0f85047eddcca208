"""The server with the GPU, and the client's libraries by the names that programs look for."""

import os
import subprocess
import sys
from pathlib import Path


class Server:
    """`causeway serve` on a free port of this machine, which ends with this."""

    def __init__(self, causeway, gpu, log):
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("CAUSEWAY_", "CUDA_"))}
        command = [causeway / "causeway", "serve", "--gpu", gpu, "--no-cache", "--insecure-no-key",
                   "--listen", "127.0.0.1:0"]
        with open(log, "w") as lines:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=lines, text=True, env=environment)
        self.on = self.process.stdout.readline().strip()
        if not self.on:
            sys.exit(f"the server does not start: {Path(log).read_text()}")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(timeout=60)


def link_client(causeway, folder):
    """Links the client's libraries into a folder."""
    for library, name in (("libcuda.so", "libcuda.so.1"), ("libcauseway_nvml.so", "libnvidia-ml.so.1")):
        if not (causeway / library).exists():
            sys.exit(f"{causeway} has no {library}: build it with `cargo build`")
        (folder / name).symlink_to(causeway / library)
