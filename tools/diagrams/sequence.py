"""From the text of a sequence diagram to its picture.

One line is one thing, from top to bottom; `#` begins a remark:

    title      The life of a launch
    lane       P  program                 a vertical line with a short name and what stands above it
    lane       C  client                  a `|` in the text breaks the line
    P -> C     cuLaunchKernel             an arrow: something is called or sent
    C --> P    returns at once            a dashed arrow: an answer
    C => W     16 MiB, in pieces          a thick arrow: bulk data
    C          checks the arguments       a note on one lane
    C..W       until the stream is idle   a note across lanes
    == later                              a divider with a title
"""

import re
from dataclasses import dataclass, field

ARROWS = {"->": "call", "-->": "answer", "=>": "bulk"}
MESSAGE = re.compile(r"(\w+) (->|-->|=>) (\w+)\s+(\S.*)")
LANE = re.compile(r"lane\s+(\w+)\s+(\S.*)")
NOTE = re.compile(r"(\w+)(?:\.\.(\w+))?\s+(\S.*)")


@dataclass(frozen=True)
class Message:
    """An arrow from one lane to another one, or back to the same."""

    source: int
    target: int
    kind: str
    text: str


@dataclass(frozen=True)
class Note:
    """A text on one lane or across several."""

    first: int
    last: int
    text: str


@dataclass(frozen=True)
class Divider:
    """A line through all lanes, with a title."""

    text: str


@dataclass
class Diagram:
    """All of a diagram, in the order of its text."""

    title: str = ""
    lanes: list[str] = field(default_factory=list)
    steps: list[Message | Note | Divider] = field(default_factory=list)


def parse(text: str) -> Diagram:
    """Reads a diagram. A line that is none of the forms above is a `ValueError` that names it."""
    diagram = Diagram()
    names: dict[str, int] = {}

    def lane(name: str, number: int) -> int:
        if name not in names:
            raise ValueError(f"line {number}: there is no lane {name!r}; lanes are {', '.join(names) or 'none yet'}")
        return names[name]

    for number, line in enumerate(text.splitlines(), 1):
        line = line.split("#", 1)[0].strip()
        if not line:
            continue
        if line.startswith("title "):
            diagram.title = line.removeprefix("title ").strip()
        elif match := LANE.fullmatch(line):
            names[match[1]] = len(diagram.lanes)
            diagram.lanes.append(match[2])
        elif line.startswith("== "):
            diagram.steps.append(Divider(line.removeprefix("== ").strip()))
        elif match := MESSAGE.fullmatch(line):
            source, target = lane(match[1], number), lane(match[3], number)
            diagram.steps.append(Message(source, target, ARROWS[match[2]], match[4]))
        elif match := NOTE.fullmatch(line):
            first = lane(match[1], number)
            last = lane(match[2], number) if match[2] else first
            diagram.steps.append(Note(min(first, last), max(first, last), match[3]))
        else:
            raise ValueError(f"line {number}: {line!r} is no lane, arrow, note or divider")
    if not diagram.title or not diagram.lanes:
        raise ValueError("a diagram needs a title and at least one lane")
    return diagram
