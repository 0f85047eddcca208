"""Runs the commands that README and book show, on the software GPU, and checks those that need more.

    python3 tools/doc_commands CAUSEWAY [FILE...]    CAUSEWAY is the built program, with its libraries beside it

Commands are marked in the files as `tools/doc_commands/blocks.py` says. Those that need a GPU, root or other machines are not
run, but each `causeway` command, its options and each target of `make` must be there. The messages that the rows of
troubleshooting.md begin with must be in the sources of the programs. Programs must have been built (`make programs`).
Exit status: 0 if all is well, 1 if not, 2 for wrong use.
"""

import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from blocks import RUN, SERVER, Command, mentions, read
from check import Causeway, check, fragments, said_by, sources, targets
from run import run

FILES = ("README.md", "CONTRIBUTING.md", "examples/README.md", "fuzz/README.md", "packaging/python/README.md")
BOOK = "docs/src"
MESSAGES = Path("docs/src/guides/troubleshooting.md")


def main(arguments: list[str]) -> int:
    """Does what the command line asks for."""
    if not arguments:
        print(__doc__, file=sys.stderr)
        return 2
    root = Path.cwd()
    program = Path(arguments[0])
    named = [Path(name) for name in arguments[1:]]
    files = named or [Path(name) for name in FILES if Path(name).is_file()] + sorted(Path(BOOK).rglob("*.md"))

    causeway = Causeway(program.resolve())
    known_targets = targets(Path("Makefile").read_text(encoding="utf-8"))
    wrong: list[str] = []
    to_run: list[tuple[Path, list[Command]]] = []
    for file in files:
        text = file.read_text(encoding="utf-8")
        commands, of_blocks = read(text)
        wrong += [f"{file}:{sentence}" for sentence in of_blocks]
        for command in commands + mentions(text):
            wrong += [f"{file}:{command.line}: {said}" for said in check(command.text, causeway.help, known_targets)]
        if any(command.how == RUN for command in commands):
            to_run.append((file, [command for command in commands if command.how in (RUN, SERVER)]))
    if MESSAGES in files:
        of_programs = sources(root)
        for line, message, parts in fragments(MESSAGES.read_text(encoding="utf-8")):
            lost = [part for part in parts if not said_by(of_programs, part)]
            wrong += [f"{MESSAGES}:{line}: no program says `{part}` (of `{message}`)" for part in lost]

    def run_file(item: tuple[Path, list[Command]]) -> tuple[Path, int, float, str | None]:
        file, commands = item
        begin = time.monotonic()
        output = run(root, program, commands)
        return file, len(commands), time.monotonic() - begin, output

    with ThreadPoolExecutor(2) as threads:
        for file, count, seconds, output in threads.map(run_file, to_run):
            print(f"{file}: {count} commands in {seconds:.1f} s", flush=True)
            if output is not None:
                wrong.append(f"{file}: a command fails:\n{output}")
    for sentence in wrong:
        print(sentence, file=sys.stderr)
    return 1 if wrong else 0


sys.exit(main(sys.argv[1:]))
