"""The page about performance."""

import textwrap

from baselines import Group

HEAD = """# Performance

<!-- Made by tools/performance from docs/baselines.json. Do not edit. -->

What was measured, the latest figure of each row. Machine, command, commit and lab note stand with each table,
so that it can be repeated. Lab notes are in `docs/lab`; they also have what did not make anything faster.

Figures over TCP are of loopback, where no network is named. The machines with GPUs are virtual and shared with others: what is
compared was measured in turns, and differences of a few percent are chance.
"""


def wrapped(text: str, indent: str = "") -> str:
    """Prose in lines as all documents have them; further lines of a list's item are indented."""
    return textwrap.fill(
        text, 110, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


def make(groups: list[Group]) -> str:
    """All of the page."""
    parts = [HEAD]
    for group in groups:
        names = list(group.series.values())
        parts.append(f"## {group.title}\n\n{wrapped(group.text)}\n\n![{group.title}](images/performance-{group.id}.svg)\n")
        lines = [f"| {group.unit} | {' | '.join(names)} | measured |", "| --- |" + " --- |" * (len(names) + 1)]
        for row in group.rows:
            measurements = " | ".join(row.measurements[name].text if name in row.measurements else "" for name in group.series)
            lines.append(f"| {row.what} | {measurements} | {row.date}, {row.commit} |")
        parts.append("\n".join(lines) + "\n")
        parts.append(wrapped(f"Machine: {group.machine}.") + "\n")
        parts.append(sources(group))
    return "\n".join(parts)


def sources(group: Group) -> str:
    """Commands and lab notes."""
    commands = list(dict.fromkeys(row.command for row in group.rows))
    notes = list(dict.fromkeys(row.source for row in group.rows))
    # A command stays on one line, to be copied.
    lines = [f"- command: `{command}`" for command in commands]
    lines.append("- lab notes: " + ", ".join(f"`docs/lab/{note}`" for note in notes))
    return "\n".join(line if line.startswith("- command") else wrapped(line, "  ") for line in lines) + "\n"
