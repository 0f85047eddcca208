"""Makes the reference of the functions for kernels that communicate from their headers, between two lines of a page of
the book.

    python3 tools/device_api            writes them into docs/src/reference/device-api.md
    python3 tools/device_api --check    writes nothing; fails if the page says something else

Exit status: 0 if all is well, 1 if not, 2 for wrong use.
"""

import sys
import textwrap
from pathlib import Path

from headers import Enumeration, Function, Structure, read

INCLUDE = Path("device/include/causeway")
PAGE = Path("docs/src/reference/device-api.md")
BEGIN, END = "<!-- functions: begin -->\n", "<!-- functions: end -->\n"
# The parts of the page: what each is about, the namespace, the headers that declare it, and which of their types a program
# names.
PARTS = (
    ("Operations of kernels", "causeway", ("put.cuh", "atomics.cuh", "barrier.cuh", "messages.cuh"), ()),
    ("Results and choices", "causeway", ("layout.h", "put.cuh"), ("Status", "Initiator", "Compare", "SignalKind")),
    ("Teams and windows, on the host", "", ("team.h",), ("causeway_team_options",)),
    ("Work requests of network cards, in kernels", "causeway::verbs", ("verbs_post.cuh", "verbs_poll.cuh"), ()),
    (
        "Requests, completions and results of network cards",
        "causeway::verbs",
        ("verbs_layout.h",),
        ("SendRequest", "ReceiveRequest", "WorkCompletion", "Operation", "Status"),
    ),
    ("Network cards, on the host", "", ("verbs.h",), ("causeway_nic_options", "causeway_qp_options")),
)
WIDTH = 128


def wrapped(text: str) -> list[str]:
    """A paragraph in lines of the book's length; none where there is no text."""
    return [*textwrap.wrap(text, WIDTH, break_on_hyphens=False), ""] if text else []


def of_code(name: str, code: str, text: str) -> list[str]:
    """The section of a function or structure."""
    return [f"### `{name}`", "", "```cpp", code, "```", "", *wrapped(text)]


def of_enumeration(enum: Enumeration) -> list[str]:
    """An enumeration's section."""
    lines = [f"### `{enum.name}`", "", *wrapped(enum.text)]
    if any(text for _, text in enum.values):
        lines += ["| value | meaning |", "| --- | --- |"]
        lines += [f"| `{name}` | {text} |" for name, text in enum.values]
    else:
        lines += [", ".join(f"`{name}`" for name, _ in enum.values)]
    return [*lines, ""]


def functions() -> tuple[str, list[str]]:
    """All sections, in Markdown, and what has no comment."""
    lines: list[str] = []
    without: list[str] = []
    listed: set[str] = set()
    for title, space, headers, types in PARTS:
        named = ", ".join(f"`<causeway/{header}>`" for header in headers)
        lines += [f"## {title}", "", f"In {named}" + (f", in the namespace `{space}`." if space else "."), ""]
        for header in headers:
            for found in read((INCLUDE / header).read_text(encoding="utf-8")):
                if isinstance(found, Function):
                    if header in listed:
                        continue
                    lines += of_code(found.name, "\n".join(found.declarations), found.text)
                elif found.name not in types:
                    continue
                elif isinstance(found, Structure):
                    lines += of_code(found.name, found.declaration, found.text)
                else:
                    lines += of_enumeration(found)
                if not found.text:
                    without.append(f"{INCLUDE / header}: {found.name} has no comment, which the book would show")
        listed.update(headers)
    return "\n".join(lines), without


def main(arguments: list[str]) -> int:
    """Does what the command line asks for."""
    if arguments not in ([], ["--check"]):
        print(__doc__, file=sys.stderr)
        return 2
    text, without = functions()
    for sentence in without:
        print(sentence, file=sys.stderr)
    page = PAGE.read_text(encoding="utf-8")
    before, behind = page.split(BEGIN)[0], page.split(END)[1]
    made = f"{before}{BEGIN}\n{text}\n{END}{behind}"
    if not arguments:
        PAGE.write_text(made, encoding="utf-8")
    elif made != page:
        print(f"{PAGE} is not what the headers say: run python3 tools/device_api", file=sys.stderr)
        return 1
    return 1 if without else 0


sys.exit(main(sys.argv[1:]))
