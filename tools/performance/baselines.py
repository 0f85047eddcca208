"""The measurements of docs/baselines.json: read, and compared with the lab notes that they come from.

A group has rows of one unit, and each row a measurement for some of the group's series: a text as the lab note has it, `"8.78"` or
`"13.6 to 13.8"`. What was not measured has no measurement: there is none that was computed from another.
"""

import json
import re
from dataclasses import dataclass
from pathlib import Path

NUMBER = re.compile(r"[+-]?\d+(?:\.\d+)?")


@dataclass(frozen=True)
class Measurement:
    """A measured number, or a range of two."""

    text: str

    @property
    def numbers(self) -> list[float]:
        """The number, or both ends of the range."""
        return [float(number) for number in NUMBER.findall(self.text)]

    @property
    def middle(self) -> float:
        """What a plot shows."""
        return sum(self.numbers) / len(self.numbers)


@dataclass(frozen=True)
class Row:
    """One thing that was measured in several ways."""

    what: str
    measurements: dict[str, Measurement]
    date: str
    commit: str
    command: str
    source: str


@dataclass(frozen=True)
class Group:
    """Rows of one unit, which one plot shows."""

    id: str
    title: str
    text: str
    unit: str
    better: str
    scale: str
    base: float | None
    machine: str
    series: dict[str, str]
    rows: list[Row]


def measurement(value) -> Measurement:
    """A measurement as it stands in the file."""
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is no measurement: one is a text, as it stands in the lab note")
    found = Measurement(value)
    if not 1 <= len(found.numbers) <= 2:
        raise ValueError(f"{found.text!r} is neither a number nor a range")
    return found


def read(text: str) -> list[Group]:
    """The groups of a file; a field that is missing or a measurement that is none is a `ValueError` or a `KeyError`."""
    groups = []
    for group in json.loads(text)["groups"]:
        rows = []
        for row in group["rows"]:
            unknown = row["values"].keys() - group["series"].keys()
            if unknown or not row["values"]:
                raise ValueError(f"{row['what']}: series {', '.join(unknown) or 'none'}")
            measurements = {name: measurement(value) for name, value in row["values"].items()}
            rows.append(Row(row["what"], measurements, row["date"], row["commit"], row["command"], row["source"]))
        if group["better"] not in ("higher", "lower") or group["scale"] not in ("linear", "log"):
            raise ValueError(f"{group['id']}: better is higher or lower, scale is linear or log")
        base = float(group["base"]) if "base" in group else None
        fields = (group[name] for name in ("id", "title", "text", "unit", "better", "scale"))
        groups.append(Group(*fields, base, group["machine"], group["series"], rows))
    return groups


def check(groups: list[Group], notes: Path) -> list[str]:
    """A sentence for each measurement that its lab note does not have."""
    wrong = []
    for group in groups:
        for row in group.rows:
            note = notes / row.source
            if not note.is_file():
                wrong.append(f"{group.id}: {row.what}: there is no lab note {note}")
                continue
            text = note.read_text(encoding="utf-8")
            for found in row.measurements.values():
                for number in NUMBER.findall(found.text):
                    if not re.search(rf"(?<![\d.]){re.escape(number.lstrip('+'))}(?![\d]|\.\d)", text.replace(",", "")):
                        wrong.append(f"{group.id}: {row.what}: {note} has no {number}")
    return wrong
