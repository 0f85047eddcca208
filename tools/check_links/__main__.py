"""Checks that links between the documents of the tree lead somewhere, without asking any other machine.

    python3 tools/check_links    all Markdown files, and what other files say of docs/

Links and images of Markdown and HTML, their anchors, includes of mdBook, paths of documents in code and scripts, and
files and folders of the tree that a document names in `backticks` (lab notes and the changelog tell of what was).
Every page of the book must be in its table of contents, and may link to other pages of the book only. Exit status: 0 if
all is well, 1 if not, 2 for wrong use.
"""

import sys
from pathlib import Path

from check import check, files


def main(arguments: list[str]) -> int:
    """Does what the command line asks for."""
    if arguments:
        print(__doc__, file=sys.stderr)
        return 2
    root = Path.cwd()
    wrong = check(root, files(root))
    for sentence in wrong:
        print(sentence, file=sys.stderr)
    return 1 if wrong else 0


sys.exit(main(sys.argv[1:]))
