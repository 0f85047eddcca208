"""What remote runs cost against native ones, from the results of a campaign, as tables in Markdown."""

import statistics

# The most that the mean overhead of these applications may be, in percent, by way.
REQUIRED = {"cublas": {"shm": 0, "tcp": 10}, "cufft": {"shm": 0, "tcp": 10}}


def overheads(runs, app, size, way):
    """remote / native - 1 in percent, for each round that has both."""
    seconds = {name: {} for name in ("native", way)}
    for run in runs:
        if run["app"] == app and run["size"] == size and run["way"] in seconds:
            seconds[run["way"]][run["round"]] = run["seconds"]
    rounds = seconds["native"].keys() & seconds[way].keys()
    return [100 * (seconds[way][number] / seconds["native"][number] - 1) for number in sorted(rounds)]


def sizes_of(runs, app):
    """The sizes of an application, in ascending order."""
    return sorted({run["size"] for run in runs if run["app"] == app})


def mean_overhead(runs, app, way):
    """The mean over all sizes of the median over all rounds, in percent; None where there is nothing to
    compare."""
    of_sizes = [overheads(runs, app, size, way) for size in sizes_of(runs, app)]
    return statistics.mean(map(statistics.median, of_sizes)) if of_sizes and all(of_sizes) else None


def summary(results, applications):
    """What a program may want to know: the mean overhead in percent by application and way."""
    remote = [way for way in results.paths if way != "native"]
    return {a.name: {way: mean_overhead(results.runs, a.name, way) for way in remote} for a in applications}


def median_of(runs, app, size, way, what):
    """The median of a figure over all rounds, or None."""
    values = [run[what] for run in runs if (run["app"], run["size"], run["way"]) == (app, size, way)]
    return statistics.median(values) if values else None


def milliseconds(seconds):
    return "-" if seconds is None else f"{1e3 * seconds:.2f}"


def percent(values):
    """The median and, of several, the spread."""
    if not values:
        return "-"
    text = f"{statistics.median(values):+.1f} %"
    return text if len(values) == 1 else f"{text} ({min(values):+.1f} to {max(values):+.1f})"


def table(*rows):
    """A Markdown table; the first row is its head."""
    rows = [[str(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |"
        for row in rows
    ]
    return [lines[0], "|" + "|".join("-" * (width + 2) for width in widths) + "|", *lines[1:]]


def application_table(results, application):
    """Times and overheads of one application, size by size."""
    runs, app = results.runs, application.name
    remote = [way for way in results.paths if way != "native"]
    compared = remote if "native" in results.paths else []
    head = [
        application.size,
        *(f"{way}, ms" for way in results.paths),
        *(f"overhead, {way}" for way in compared),
    ]
    head += [f"setup, {way}, ms" for way in results.paths]
    rows = [head]
    for size in sizes_of(runs, app):
        row = [size, *(milliseconds(median_of(runs, app, size, way, "seconds")) for way in results.paths)]
        row += [percent(overheads(runs, app, size, way)) for way in compared]
        row += [milliseconds(median_of(runs, app, size, way, "setup_seconds")) for way in results.paths]
        rows.append(row)
    if compared:
        means = [mean_overhead(runs, app, way) for way in compared]
        cells = ["-" if mean is None else f"{mean:+.1f} %" for mean in means]
        rows.append(["mean", *("" for _ in results.paths), *cells, *("" for _ in results.paths)])
    return table(*rows)


def checks(results):
    """(application, way, required and measured percent or None, met) for each requirement on a way that was
    run."""
    for app, by_way in REQUIRED.items():
        for way, required in by_way.items():
            if way in results.paths and any(run["app"] == app for run in results.runs):
                measured = mean_overhead(results.runs, app, way)
                yield app, way, required, measured, None if measured is None else measured <= required


def requirements_table(results):
    """What is required of the mean overheads, and whether it is met; empty when none of it was measured."""
    rows = [["mean overhead", "required", "measured", "verdict"]]
    for app, way, required, measured, met in checks(results):
        verdict = {None: "unknown", True: "met", False: "MISSED"}[met]
        shown = "-" if measured is None else f"{measured:+.1f} %"
        rows.append([f"{app}, {way}", f"<= {required} %", shown, verdict])
    return table(*rows) if len(rows) > 1 else []


def markdown(results, applications, check):
    """All tables, as lines; with `check` that of the requirements too, which say nothing about small
    sizes."""
    rounds = "One round" if results.rounds == 1 else f"Medians of {results.rounds} rounds"
    lines = [
        f"{rounds}, in which the ways follow each other; times include the transfers. Overhead is remote / "
        "native - 1 within a round: the median and the spread. Setup is what comes before the first run: "
        "context, library, memory.",
    ]
    for application in applications:
        if any(run["app"] == application.name for run in results.runs):
            published = f" Published for rCUDA: {application.published}." if application.published else ""
            lines += [
                "",
                f"**{application.title}.**{published}",
                "",
                *application_table(results, application),
            ]
    required = requirements_table(results)
    if check and required:
        lines += ["", "What must hold:", "", *required]
    lines += ["", *(f"FAIL {failure}" for failure in results.failures)] if results.failures else []
    return lines
