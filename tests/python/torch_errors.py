"""PyTorch: faults of kernels, each in a process of its own, since a fault ends the use of the device for its process."""

from checks import child, main, need_torch, require, run_child, test

torch = need_torch()


def report(function):
    """Prints the first error of a function that must fail, and whether the error stays."""
    try:
        function()
        torch.cuda.synchronize()
    except RuntimeError as error:
        print(f"error: {str(error).splitlines()[0]}")
    else:
        print("no error")
    try:
        torch.ones(1, device="cuda").sum().item()
    except RuntimeError:
        print("the error stays")
    else:
        print("the error is gone")


@child
def index_out_of_range():
    x = torch.arange(10, device="cuda")
    report(lambda: x[torch.tensor([3, 4711], device="cuda")])


@child
def wrong_class():
    scores, classes = torch.randn(8, 4, device="cuda"), torch.full((8,), 9, device="cuda")
    report(lambda: torch.nn.functional.cross_entropy(scores, classes))


@child
def assertion():
    report(lambda: torch._assert_async(torch.zeros((), dtype=torch.bool, device="cuda")))


def outcome(function):
    done = run_child(function)
    lines = done.stdout.splitlines()
    require(done.returncode >= 0, f"the process was ended by signal {-done.returncode}: {done.stderr.strip()[-300:]}")
    require(len(lines) >= 2, f"the process said {done.stdout!r} and {done.stderr.strip()[-300:]!r}")
    require(any("device-side assert triggered" in line for line in lines), f"the error is not named: {lines}")
    require("the error stays" in lines, "the error went away")
    return done.stdout + done.stderr


@test
def an_index_out_of_range_is_named():
    text = outcome(index_out_of_range)
    require("index out of bounds" in text and "Assertion" in text, f"the assertion's text is missing: {text[-300:]!r}")


@test
def a_wrong_class_is_named():
    text = outcome(wrong_class)
    require("Assertion" in text, f"the assertion's text is missing: {text[-300:]!r}")


@test
def an_assertion_on_the_device_is_named():
    outcome(assertion)


@test
def other_processes_do_not_notice():
    x = torch.ones(1000, device="cuda")
    outcome(index_out_of_range)
    require(x.sum().item() == 1000, "this process was hurt by another one's fault")


@test
def wrong_calls_leave_the_device_working():
    for wrong in (
        lambda: torch.ones(3, device="cuda") @ torch.ones(4, device="cuda"),
        lambda: torch.ones(3, device="cuda:99"),
        lambda: torch.cuda.set_device(99),
    ):
        try:
            wrong()
        except (RuntimeError, AssertionError):
            pass
        else:
            raise AssertionError("a wrong call succeeded")
    require(torch.ones(1000, device="cuda").sum().item() == 1000, "the device computes wrongly after wrong calls")


if __name__ == "__main__":
    main()
