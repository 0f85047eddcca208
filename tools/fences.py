"""The lines of a Markdown file, and in which fenced block each stands."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

FENCE = re.compile(r"^\s*(`{3,}|~{3,})\s*(.*?)\s*$")


@dataclass(frozen=True)
class Block:
    """A fenced block: the line of the fence that opens it, and what stands behind that."""

    line: int
    info: str


def lines(text: str) -> Iterator[tuple[int, str, Block | None]]:
    """Each line that is no fence: its number, itself, and its block; none in prose."""
    fence = ""
    block = None
    for number, line in enumerate(text.splitlines(), 1):
        mark = FENCE.match(line)
        if mark and not block:
            fence, block = mark[1], Block(number, mark[2])
        elif mark and mark[1].startswith(fence) and not mark[2]:
            block = None
        else:
            yield number, line, block
