"""What the page says, made from the texts of `--help`."""

import re

HEAD = """# Command line

<!-- Made by tools/cli_reference from what `causeway --help` prints. Do not edit. -->

What `causeway` prints with `--help`, command by command. Variables that it reads:
[Environment variables](environment.md).
"""

# A line of the list of commands: two blanks, a name, and what it does (more lines of which are indented further).
COMMAND = re.compile(r"^  ([a-z][a-z-]*)(?:  .*)?$")


def commands(text: str) -> list[str]:
    """The commands that a help lists, without `help`."""
    names: list[str] = []
    in_list = False
    for line in text.splitlines():
        if line == "Commands:":
            in_list = True
        elif in_list and not line.strip():
            break
        elif in_list and (found := COMMAND.match(line)) and found[1] != "help":
            names.append(found[1])
    return names


def make(helps: dict[tuple[str, ...], str]) -> str:
    """The page. The key of a text is the words of its command, those of `causeway` itself are none."""
    parts = [HEAD]
    for words, text in helps.items():
        level = "##" if len(words) < 2 else "###"
        lines = "\n".join(line.rstrip() for line in text.strip("\n").splitlines())
        parts.append(f"{level} {' '.join(('causeway', *words))}\n\n```text\n{lines}\n```\n")
    return "\n".join(parts)
