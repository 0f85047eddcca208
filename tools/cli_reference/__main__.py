"""Makes the book's page about the command line from what `causeway --help` prints.

    python3 tools/cli_reference CAUSEWAY            writes docs/src/reference/cli.md; CAUSEWAY is the built program
    python3 tools/cli_reference --check CAUSEWAY    writes nothing; fails if the page is not what the program prints

Exit status: 0 if all is well, 1 if not, 2 for wrong use.
"""

import os
import subprocess
import sys
from pathlib import Path

from page import commands, make

PAGE = Path("docs/src/reference/cli.md")


def help_of(program: Path, words: tuple[str, ...]) -> str:
    """The long help of a command. Variables of this environment would be quoted in it, so it gets none."""
    environment = {"PATH": os.environ["PATH"], "COLUMNS": "100"}
    command = [str(program.resolve()), *words, "--help"]
    return subprocess.run(command, env=environment, capture_output=True, check=True, text=True).stdout


def main(arguments: list[str]) -> int:
    """Does what the command line asks for."""
    check = arguments[:1] == ["--check"]
    names = arguments[check:]
    if len(names) != 1:
        print(__doc__, file=sys.stderr)
        return 2
    program = Path(names[0])
    helps: dict[tuple[str, ...], str] = {}
    waiting: list[tuple[str, ...]] = [()]
    while waiting:
        words = waiting.pop(0)
        helps[words] = help_of(program, words)
        waiting = [(*words, name) for name in commands(helps[words])] + waiting
    page = make(helps)
    if not check:
        PAGE.write_text(page, encoding="utf-8")
    elif not PAGE.is_file() or PAGE.read_text(encoding="utf-8") != page:
        print(f"{PAGE} is not what {program} prints: run python3 tools/cli_reference {program}", file=sys.stderr)
        return 1
    return 0


sys.exit(main(sys.argv[1:]))
