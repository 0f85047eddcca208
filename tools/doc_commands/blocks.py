"""The commands of a Markdown file.

A fenced block whose info string begins with `console` holds commands: what stands behind `$ `, to the end of the line, and
on the next ones where a line ends with a backslash. Other lines are output. A word behind `console` says how it is run:

| word             | meaning                                                                     |
| ---------------- | --------------------------------------------------------------------------- |
| (none)           | runs, and must succeed                                                      |
| `server`         | starts a server, which lives to the end of the file                         |
| `builds`         | builds or tests the tree; what runs it is `make test` itself, or a developer |
| `needs-gpu`      | needs an NVIDIA GPU, or programs that run on nothing else                   |
| `needs-rdma`     | needs InfiniBand or RoCE cards                                              |
| `needs-machines` | needs several machines, containers or other programs                        |
| `needs-root`     | changes the machine                                                         |
| `bare-...`       | installs something on a bare machine: `make packages-test` runs it          |
"""

import re
import sys
from dataclasses import dataclass
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent.parent))
from fences import lines  # noqa: E402

RUN = ""
SERVER = "server"
BARE = ("bare-wheel", "bare-deb", "bare-mpi", "bare-dev", "bare-rpm", "bare-archive")
NOT_RUN = ("builds", "needs-gpu", "needs-rdma", "needs-machines", "needs-root", *BARE)

CODE = re.compile(r"`([^`]+)`")
# What begins a command in a block that does not say that it holds some.
UNMARKED = ("", "sh", "bash", "shell", "text")
LIKE_A_COMMAND = re.compile(r"^\s*(\$ |(?:causeway|make|cargo|docker|gpu-bundle/gpu-test\.sh) [a-z-])")

# Output has lines that begin with the name of a program, but none that begins with a prompt.
PROMPT = re.compile(r"^\s*\$ ")


@dataclass(frozen=True)
class Command:
    """A command, with the line that it begins on, and how it is run."""

    line: int
    text: str
    how: str


def read(text: str) -> tuple[list[Command], list[str]]:
    """The commands of a file, and what is wrong with its blocks, as sentences that begin with a line's number."""
    commands: list[Command] = []
    wrong: list[str] = []
    last = None
    unfinished = False
    for number, line, block in lines(text):
        if block != last:
            last, unfinished = block, False
            if block and block.info.startswith("console ") and block.info[8:] not in (SERVER, *NOT_RUN):
                wrong.append(f"{block.line}: a block of commands cannot be marked `{block.info[8:]}`")
        if not block:
            continue
        language, _, how = block.info.partition(" ")
        if language != "console":
            begins = {"text": PROMPT}.get(language, LIKE_A_COMMAND) if language in UNMARKED else None
            if begins and begins.match(line):
                wrong.append(f"{number}: commands stand in blocks that begin with ```console, each behind `$ `")
        elif unfinished:
            begun = commands.pop()
            commands.append(Command(begun.line, f"{begun.text}\n{line}", how))
            unfinished = line.endswith("\\")
        elif line.startswith("$ "):
            commands.append(Command(number, line[2:], how))
            unfinished = line.endswith("\\")
    return commands, wrong


def mentions(text: str) -> list[Command]:
    """Commands that prose names in passing, such as `causeway serve --clear`."""
    return [
        Command(number, code, "")
        for number, line, block in lines(text)
        if block is None
        for code in CODE.findall(line)
        if code.startswith("causeway ")
    ]
