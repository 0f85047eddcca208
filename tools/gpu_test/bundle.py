"""Where are the programs, and on which machine are we?

The package lies in the folder that `make gpu-bundle` packs, beside all that it runs, or in the source tree's
`tools`."""

import datetime
import os
import pathlib
import shutil
import tarfile
import tempfile

from gpu_test.commands import run

BUNDLE = pathlib.Path(__file__).resolve().parents[1]
TREE = BUNDLE.parent  # if this is the source tree's copy
CAUSEWAY = BUNDLE / "bin" / "causeway"

# The CUDA runtimes of the bundle; in front of others, so that programs run with what they were compiled for.
RUNTIME = {"LD_LIBRARY_PATH": str(BUNDLE / "lib")}


def unpack(name):
    """A folder of the bundle, such as the test programs, unpacked by whoever comes first."""
    folder = BUNDLE / name
    if not folder.exists():
        with tempfile.TemporaryDirectory(dir=BUNDLE) as beside:
            with tarfile.open(BUNDLE / f"{name}.tar.xz") as packed:
                packed.extractall(beside)
            try:
                os.rename(pathlib.Path(beside) / name, folder)
            except OSError:
                if not folder.exists():  # else another run of this script was faster
                    raise
    return folder


def machine():
    """One line about this machine."""
    gpu = "no nvidia-smi here"
    if shutil.which("nvidia-smi"):
        outcome = run(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"], 30)
        gpu = "; ".join(outcome.output.strip().splitlines()) or outcome.reason()
    return f"GPU and driver: {gpu}; {os.cpu_count()} cores; Linux {os.uname().release}"


def now():
    """The time, in words."""
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
