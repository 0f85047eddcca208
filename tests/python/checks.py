"""What the programs of this folder share: tests with names, comparisons, values that two runs must agree on, child processes.

A program is run natively and through Causeway, and its standard output compared line by line:

    ok NAME                         a test that passed
    FAIL NAME: REASON               one that did not; the traceback is on standard error
    skipped NAME: REASON            one that cannot run on this machine
    value NAME NUMBER within BOUND  a number that may differ by this share of itself between two runs
    # TEXT                          a note, which is not compared

The exit status is 0 when no test failed, 1 when one did, and 77 when a package is missing and nothing was run."""

import functools
import importlib
import os
import re
import subprocess
import sys
import time
import traceback

SKIPPED = 77

_tests = {}
_children = {}


class Skipped(Exception):
    """Raised by a test that cannot run on this machine; the message says why."""


def need(package):
    """Imports a package that the whole program is about; without it the program is skipped."""
    try:
        return importlib.import_module(package)
    except Exception as error:  # a package can be broken in many ways
        print(f"skipped: {package} cannot be imported: {type(error).__name__}: {first_line(error)}")
        traceback.print_exc()
        sys.exit(SKIPPED)


def need_torch():
    """PyTorch on a device that works, with float32 products in full precision so that they can be compared with the CPU's."""
    torch = need("torch")
    torch.manual_seed(1)
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cuda.matmul.allow_tf32 = False
    return torch


def test(function):
    """Makes a function one of the program's tests."""
    _tests[function.__name__] = function
    return function


def child(function):
    """Makes a function something that `run_child` runs in a process of its own."""
    _children[function.__name__] = function
    return function


def run_child(function, environment=None, limit=60):
    """Runs a function marked with `child` in a fresh process of this program; the completed process, with its output."""
    return subprocess.run(
        [sys.executable, sys.argv[0], "--child", function.__name__],
        env={**os.environ, **(environment or {})},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=limit,
    )


def require_child(function, environment=None, limit=60):
    """Runs a child that must end well, and passes its notes on."""
    done = run_child(function, environment, limit)
    sys.stderr.write(done.stderr)
    for line in done.stdout.splitlines():
        if line.startswith("#"):
            print(line)
    require(done.returncode == 0, f"the child process ended with {done.returncode}: {last_words(done)}")


def last_words(done):
    """The line of a process's output that says why it failed: its last exception, or its last line."""
    lines = (done.stderr.strip() or done.stdout.strip() or "it said nothing").splitlines()
    exceptions = [line for line in lines if re.match(r"[\w.]+(Error|Exception)\b", line)]
    return (exceptions or lines)[-1]


def require(condition, sentence):
    """Fails the test with this sentence unless the condition holds."""
    if not condition:
        raise AssertionError(sentence)


def on_host(values):
    """Numbers of any library as a NumPy array of float64, complex128 or integers."""
    import numpy

    if hasattr(values, "detach"):  # PyTorch
        values = values.detach().cpu().resolve_conj()
        values = values.to_dense() if values.layout != importlib.import_module("torch").strided else values
        if values.is_floating_point():
            values = values.double()
        values = values.numpy()
    elif hasattr(values, "get") and hasattr(values, "device"):  # CuPy
        values = values.get()
    return numpy.asarray(values)


def close(got, want, bound, what="the result"):
    """Requires that no number differs by more than `bound` times the largest wanted one (or 1, if all are smaller)."""
    import numpy

    got, want = on_host(got), on_host(want)
    require(got.shape == want.shape, f"{what} has the shape {got.shape} instead of {want.shape}")
    require(bool(numpy.isfinite(got).all()), f"{what} has numbers that are not finite")
    scale = max(1.0, float(numpy.abs(want).max(initial=0)))
    difference = float(numpy.abs(got.astype(want.dtype) - want).max(initial=0)) / scale
    require(difference <= bound, f"{what} differs by {difference:.3g} of its largest number; {bound:g} is allowed")


def same(got, want, what="the result"):
    """Requires equality."""
    import numpy

    if hasattr(got, "shape"):
        got, want = on_host(got), on_host(want)
        require(got.shape == want.shape, f"{what} has the shape {got.shape} instead of {want.shape}")
        require(bool(numpy.array_equal(got, want)), f"{what} differs in {int((got != want).sum())} of {got.size} places")
    else:
        require(got == want, f"{what} is {got!r} instead of {want!r}")


def value(name, number, within=1e-3):
    """Prints a number that two runs must agree on up to this share of it."""
    print(f"value {name} {float(number):.9g} within {within:g}")


def note(text):
    """Prints something that two runs need not agree on."""
    print(f"# {text}")


def first_line(error):
    """The first line of an exception's message."""
    return (str(error).strip() or "no message").splitlines()[0]


def main():
    """Runs the tests whose names were given, or all."""
    sys.stdout.reconfigure(line_buffering=True)
    arguments = sys.argv[1:]
    if arguments[:1] == ["--child"]:
        _children[arguments[1]]()
        return
    unknown = [name for name in arguments if name not in _tests]
    if unknown:
        sys.exit(f"no test is called {', '.join(unknown)}; there are {', '.join(_tests)}")
    failed = [name for name in arguments or _tests if not _run(name)]
    sys.exit(1 if failed else 0)


def _run(name):
    start = time.monotonic()
    try:
        _tests[name]()
    except Skipped as reason:
        print(f"skipped {name}: {reason}")
        return True
    except Exception as error:
        print(f"FAIL {name}: {type(error).__name__}: {first_line(error)}")
        traceback.print_exc()
        return False
    print(f"ok {name}")
    note(f"{name} took {time.monotonic() - start:.1f} s")
    return True


def skipped_if(condition, reason):
    """A decorator for a test that cannot run when the condition holds."""

    def decorate(function):
        @functools.wraps(function)
        def wrapped():
            if condition():
                raise Skipped(reason)
            function()

        return wrapped

    return decorate
