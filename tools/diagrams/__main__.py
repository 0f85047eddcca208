"""Makes the sequence diagrams of the book from their texts.

    python3 tools/diagrams            docs/diagrams/*.seq to docs/src/images/*.svg
    python3 tools/diagrams --check    writes nothing; fails if a drawing is not what its text makes

What such a text says: `tools/diagrams/sequence.py`. Exit status: 0 if all is well, 1 if not, 2 for wrong use.
"""

import sys
from pathlib import Path

from draw import draw
from sequence import parse

TEXTS = Path("docs/diagrams")
DRAWINGS = Path("docs/src/images")


def main(arguments: list[str]) -> int:
    """Does what the command line asks for."""
    if arguments not in ([], ["--check"]):
        print(__doc__, file=sys.stderr)
        return 2
    wrong = 0
    for text in sorted(TEXTS.glob("*.seq")):
        try:
            drawing = draw(parse(text.read_text(encoding="utf-8")))
        except ValueError as error:
            print(f"{text}: {error}", file=sys.stderr)
            wrong = 1
            continue
        file = DRAWINGS / f"{text.stem}.svg"
        if not arguments:
            file.write_text(drawing, encoding="utf-8")
        elif not file.is_file() or file.read_text(encoding="utf-8") != drawing:
            print(f"{file} is not what {text} makes: run python3 tools/diagrams", file=sys.stderr)
            wrong = 1
    return wrong


sys.exit(main(sys.argv[1:]))
