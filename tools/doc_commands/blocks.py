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
"""

import re
from dataclasses import dataclass

RUN = ""
SERVER = "server"
NOT_RUN = ("builds", "needs-gpu", "needs-rdma", "needs-machines", "needs-root")

FENCE = re.compile(r"^\s*(`{3,})\s*(.*?)\s*$")
CODE = re.compile(r"`([^`]+)`")
# What begins a command in a block that does not say that it holds some.
LIKE_A_COMMAND = re.compile(r"^\s*(\$ |(?:causeway|make|cargo|docker|gpu-bundle/gpu-test\.sh) [a-z-])")


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
    fence = info = ""
    unfinished = False
    for number, line in enumerate(text.splitlines(), 1):
        if mark := FENCE.match(line):
            if not fence:
                fence, info = mark[1], mark[2]
                language, _, how = info.partition(" ")
                if language == "console" and how not in (RUN, SERVER, *NOT_RUN):
                    wrong.append(f"{number}: a block of commands cannot be marked `{how}`")
            elif mark[1].startswith(fence) and not mark[2]:
                fence, unfinished = "", False
            continue
        if not fence:
            continue
        language, _, how = info.partition(" ")
        if language != "console":
            if info in ("", "sh", "bash", "shell") and LIKE_A_COMMAND.match(line):
                wrong.append(f"{number}: commands stand in blocks that begin with ```console, each behind `$ `")
        elif unfinished:
            last = commands.pop()
            commands.append(Command(last.line, f"{last.text}\n{line}", how))
            unfinished = line.endswith("\\")
        elif line.startswith("$ "):
            commands.append(Command(number, line[2:], how))
            unfinished = line.endswith("\\")
    return commands, wrong


def mentions(text: str) -> list[Command]:
    """Commands that prose names in passing, such as `causeway serve --clear`."""
    found = []
    fence = ""
    for number, line in enumerate(text.splitlines(), 1):
        if mark := FENCE.match(line):
            fence = "" if fence else mark[1]
        elif not fence:
            found += [Command(number, code, "") for code in CODE.findall(line) if code.startswith("causeway ")]
    return found
