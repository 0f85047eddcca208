"""The plugin for pytest: `pytest --gpu software` runs the tests on the software GPU, `--gpu SERVER` on a server's, `--gpu none`
without one; tests with the marker `gpu` are skipped where there is none.

A process keeps the CUDA driver that it has begun with. So where another one is asked for, pytest is started anew by
`causeway run`, before it has read any conftest.py; the processes of pytest-xdist inherit what that has set.

Installed with the wheel, this is imported by every pytest of its environment, and costs nothing until it is asked for. It is
no part of the package `causeway_gpu`, which Python imports when it starts (`causeway_gpu.pth`): pytest would rewrite the
assertions of a plugin's package, and warns where it comes too late for that."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

NONE = "none"
# Which GPU this process was started for. No variable of Causeway's own: it concerns this plugin alone.
STARTED_FOR = "PYTEST_CAUSEWAY_GPU"

# Says which GPUs a process has that is started from here: their names, or why there are none. In a process of its own,
# for a driver that is in use does not survive the forks of tests.
PROBE = """
import ctypes, json
try:
    driver = ctypes.CDLL("libcuda.so.1")
    status = driver.cuInit(0)
    count, names = ctypes.c_int(), []
    if status == 0:
        status = driver.cuDeviceGetCount(ctypes.byref(count))
    for index in range(count.value):
        name = ctypes.create_string_buffer(256)
        driver.cuDeviceGetName(name, len(name), index)
        names.append(name.value.decode(errors="replace"))
    why = "" if names else f"the driver has none (CUDA error {status})" if status else "the driver has none"
except OSError as cause:
    names, why = [], str(cause)
print("\\n" + json.dumps([names, why]))
"""
# Seconds: a server may be far away, and a machine busy.
PROBE_LIMIT = 120


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds `--gpu`."""
    group = parser.getgroup("causeway", "GPUs that are elsewhere (causeway-gpu)")
    group.addoption(
        "--gpu",
        metavar="SERVER",
        help="GPU for the tests: `software` for the software GPU, what `causeway run --on` takes for that of a server, `local` for"
        f" those of this machine, `{NONE}` for no GPU. Without it: what is configured",
    )


@pytest.hookimpl(hookwrapper=True, tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config):
    """Puts the GPU in place, before pytest captures output, and before any conftest.py is imported."""
    gpu = getattr(early_config.known_args_namespace, "gpu", None)
    if gpu is not None:
        put_in_place(gpu.strip())
    yield


def put_in_place(gpu: str) -> None:
    """Makes this process use a GPU; starts pytest anew where it is not the one that it was started for."""
    if gpu == NONE:
        # For Causeway's driver and for NVIDIA's, and for all programs that the tests start.
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
        os.environ["CAUSEWAY_ON"] = ""
        return
    if not gpu:
        raise pytest.UsageError("--gpu needs a server, `software`, `local` or `none`")
    if os.environ.get(STARTED_FOR) == gpu:
        return
    command = own_command()
    if command is None:
        raise pytest.UsageError(
            f"--gpu {gpu} starts pytest anew, and this pytest was called by another program: start that one by"
            f" `causeway run --on {gpu} -- PROGRAM`, without --gpu"
        )
    from causeway_gpu.program import PROGRAM

    os.environ[STARTED_FOR] = gpu
    # An empty list of devices is that of `--gpu none` further out, and no choice of this one.
    if os.environ.get("CUDA_VISIBLE_DEVICES") == "":
        del os.environ["CUDA_VISIBLE_DEVICES"]
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        os.execv(PROGRAM, [PROGRAM, "run", "--on", gpu, "--", *command])
    except OSError as cause:
        raise pytest.UsageError(
            f"--gpu {gpu} needs the program {PROGRAM}, which cannot be started: {cause}"
        ) from None


def own_command() -> list[str] | None:
    """The command that starts this pytest anew; nothing where it is part of another program."""
    name = os.path.basename(sys.argv[0])
    is_module = name == "__main__.py" and os.path.basename(os.path.dirname(sys.argv[0])) == "pytest"
    if not is_module and name not in ("pytest", "py.test"):
        return None
    given = getattr(sys, "orig_argv", None)
    if given is not None:
        # The interpreter, its options, and what leads to pytest (`-m coverage run -m pytest`).
        return [sys.executable, *given[1:]]
    # Python 3.9.
    start = ["-m", "pytest"] if is_module else [sys.argv[0]]
    return [sys.executable, *subprocess._args_from_interpreter_flags(), *start, *sys.argv[1:]]


def pytest_configure(config: pytest.Config) -> None:
    """Makes the marker known."""
    config.addinivalue_line(
        "markers",
        "gpu(count=1): needs so many GPUs, and is skipped where there are fewer (`pytest --gpu software` brings one)",
    )
    # What the process that has started this one has found, if it is one of pytest-xdist's.
    found = getattr(config, "workerinput", {}).get("causeway_gpu")
    if found is not None:
        config._causeway_gpu = found


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node) -> None:
    """Tells a process of pytest-xdist which GPUs there are, so that not each of them asks."""
    if is_asked_for(node.config):
        node.workerinput["causeway_gpu"] = gpus(node.config)


def is_asked_for(config: pytest.Config) -> bool:
    """Whether there is anything to say of GPUs before a test needs one."""
    return config.getoption("gpu", None) is not None or bool(os.environ.get("CAUSEWAY_ON", "").strip())


def gpus(config: pytest.Config) -> tuple[list[str], str]:
    """The names of the GPUs, and why there are none. Asked for once."""
    found = getattr(config, "_causeway_gpu", None)
    if found is None:
        found = ask(config)
        config._causeway_gpu = found
    return found


def ask(config: pytest.Config) -> tuple[list[str], str]:
    """The same, asked for now."""
    if (config.getoption("gpu", None) or "").strip() == NONE:
        return [], f"--gpu {NONE}"
    try:
        answer = subprocess.run(
            [sys.executable, "-c", PROBE],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=PROBE_LIMIT,
        )
        names, why = json.loads(answer.stdout.splitlines()[-1])
    except subprocess.TimeoutExpired:
        return [], f"no answer of the driver within {PROBE_LIMIT} s"
    except (OSError, ValueError, IndexError):
        return [], "the driver ended the process that asked it"
    said = [line for line in answer.stderr.splitlines() if "causeway" in line]
    return names, said[-1] if said and not names else why


def pytest_report_header(config: pytest.Config) -> str | None:
    """The line that says which GPU, where one is asked for."""
    if not is_asked_for(config):
        return None
    asked = config.getoption("gpu", None)
    by = f"--gpu {asked}" if asked is not None else "CAUSEWAY_ON"
    names, why = gpus(config)
    if not names:
        return f"gpu: none ({why})"
    return f"gpu: {', '.join(names)} ({by})"


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skips a test that needs more GPUs than there are."""
    required = 0
    for marker in item.iter_markers("gpu"):
        required = max(required, *marker.args[:1], marker.kwargs.get("count", 1))
    if not required:
        return
    names, why = gpus(item.config)
    if not names:
        pytest.skip(f"needs a GPU: {why}")
    if len(names) < required:
        pytest.skip(f"needs {required} GPUs, and there {'is' if len(names) == 1 else 'are'} {len(names)}")
