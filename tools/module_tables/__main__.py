"""Tables of modules in the headers of `lib.rs`, `main.rs` and `mod.rs`: made from the headers of the modules.

    python3 tools/module_tables            fails where a table is not what the modules' headers say, or a header asks
    python3 tools/module_tables --write    writes the tables anew

A header that has a table `//! | module | contents |` has a row for each module that the file declares, but those of
tests: its name, and the first sentence of its own header. Rows keep their order; new modules come last. Exit status: 0
if all is well, 1 if not, 2 for wrong use.
"""

import sys
from pathlib import Path

from tables import HeaderError, first_sentence, renewed

FOLDERS = ("crates/*/src", "crates/*/tests", "tools/*/src", "tests/src", "tests/tests", "tests/*/src")
# Made by bindgen; a list of imports.
WITHOUT_HEADER = ("crates/api/src/sys.rs", "crates/transport-tcp/src/schedule/tests.rs")


def main(arguments: list[str]) -> int:
    """Does what the command line asks for."""
    if arguments not in ([], ["--write"]):
        print(__doc__, file=sys.stderr)
        return 2
    wrong = []
    for file in sorted(path for folder in FOLDERS for path in Path().glob(f"{folder}/**/*.rs")):
        if str(file) in WITHOUT_HEADER:
            continue
        try:
            first_sentence(file)
            text, right = renewed(file)
        except HeaderError as error:
            wrong.append(str(error))
            continue
        if text != right and arguments:
            file.write_text(right)
        elif text != right:
            wrong.append(f"{file}: its table of modules is stale: `python3 tools/module_tables --write`")
    for sentence in wrong:
        print(sentence, file=sys.stderr)
    return 1 if wrong else 0


sys.exit(main(sys.argv[1:]))
