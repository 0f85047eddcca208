"""What a Markdown file links to, and what can be linked to in it."""

import re
import sys
from dataclasses import dataclass
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent.parent))
from fences import lines  # noqa: E402

CODE = re.compile(r"(`+)(?:(?!\1).)+?\1")
LINK = re.compile(r"\]\(\s*<?([^\s)>]+)>?(?:\s+\"[^\"]*\")?\s*\)")
DEFINITION = re.compile(r"^\s{0,3}\[[^\]]+\]:\s+<?(\S+?)>?\s*$")
HTML = re.compile(r"<(?:a|img|source)\b[^>]*?\b(?:href|src)=\"([^\"]+)\"")
INCLUDE = re.compile(r"\{\{#include\s+([^\s}]+)\s*\}\}")
HEADING = re.compile(r"^\s{0,3}#{1,6}\s+(.*?)\s*#*\s*$")
GIVEN_ID = re.compile(r"\s*\{#([\w-]+)\}$")
HTML_ID = re.compile(r"\b(?:id|name)=\"([^\"]+)\"")


@dataclass(frozen=True)
class Link:
    """A link, and the line that has it."""

    line: int
    target: str


def lines_of_text(text: str):
    """The lines outside of fenced code, with their numbers."""
    return ((number, line) for number, line, block in lines(text) if block is None)


def links(text: str) -> list[Link]:
    """All links and images, and includes of mdBook."""
    found = []
    for number, line in lines_of_text(text):
        plain = CODE.sub("", line)
        for pattern in (LINK, DEFINITION, HTML, INCLUDE):
            found += [Link(number, match[1]) for match in pattern.finditer(plain)]
    return found


def code(text: str) -> list[Link]:
    """What stands in backticks."""
    return [
        Link(number, match[0].strip("`").strip()) for number, line in lines_of_text(text) for match in CODE.finditer(line)
    ]


def stray_rows(text: str) -> list[int]:
    """The first lines of tables that have no row of `---` below their head."""
    found, rows = [], 0
    for number, line in lines_of_text(text):
        is_row = line.lstrip().startswith("|")
        rows = rows + 1 if is_row else 0
        if rows == 2 and not re.match(r"\s*\|[\s:|-]+\|?\s*$", line):
            found.append(number - 1)
    return found


def anchors(text: str) -> set[str]:
    """The names of headings, as GitHub and mdBook make them, and ids that are given in HTML."""
    found: set[str] = set()
    for _, line in lines_of_text(text):
        found.update(HTML_ID.findall(line))
        heading = HEADING.match(line)
        if not heading:
            continue
        title = heading[1]
        if given := GIVEN_ID.search(title):
            found.add(given[1])
            continue
        name = anchor(title)
        same = 0
        while (f"{name}-{same}" if same else name) in found:
            same += 1
        found.add(f"{name}-{same}" if same else name)
    return found


def anchor(title: str) -> str:
    """The name of a heading: letters and digits, with hyphens for blanks."""
    title = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title)
    kept = "".join(letter for letter in title.lower() if letter.isalnum() or letter in "-_ ")
    return kept.strip().replace(" ", "-")


def read(path: Path) -> str:
    """The text of a file; what is no UTF-8 is of no importance here."""
    return path.read_text(encoding="utf-8", errors="replace")
