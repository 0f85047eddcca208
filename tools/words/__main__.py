"""Checks the words of identifiers, prose and safety comments: terms of the field, no words of our own.

    python3 tools/words            fails where a listed word is used more often than its file in tools/words allows
    python3 tools/words --list W   every use of the word W (a name of one of the lists) with file and line
    python3 tools/words --record   writes the counts of today, after words have become fewer

identifiers.tsv, prose.tsv and safety.tsv in tools/words have a line for each word: its name, a regular expression, what
is allowed, and how often it is used today. Identifiers are split at underscores and changes of case before they are
searched; those of tests, and of declarations of foreign libraries, do not count. Exit status: 0 if all is well, 1 if
not, 2 for wrong use.
"""

import sys
from pathlib import Path

from words import Word, identifiers, prose, read_list, safety, uses_in_tree, write_list

LISTS = {"identifiers.tsv": identifiers, "prose.tsv": prose, "safety.tsv": safety}


def main(arguments: list[str]) -> int:
    """Does what the command line asks for."""
    here = Path(__file__).parent
    lists = {name: read_list(here / name) for name in LISTS}
    match arguments:
        case []:
            return check(lists)
        case ["--list", word]:
            return show(lists, word)
        case ["--record"]:
            return record(lists, here)
    print(__doc__, file=sys.stderr)
    return 2


def check(lists: dict[str, list[Word]]) -> int:
    """Compares the uses of today with the stored counts."""
    status = 0
    for name, words in lists.items():
        found = uses_in_tree(Path.cwd(), words, LISTS[name])
        for word in words:
            count = len(found[word.name])
            if count > word.count:
                status = 1
                print(
                    f"{word.name}: {count} uses, {word.count} are allowed; `python3 tools/words --list '{word.name}'` "
                    "shows them, docs/glossary.md has the terms to use",
                    file=sys.stderr,
                )
    return status


def show(lists: dict[str, list[Word]], wanted: str) -> int:
    """Prints every use of one word."""
    for name, words in lists.items():
        chosen = [word for word in words if word.name == wanted]
        for uses in uses_in_tree(Path.cwd(), chosen, LISTS[name]).values():
            print(*uses, sep="\n")
    return 0


def record(lists: dict[str, list[Word]], here: Path) -> int:
    """Stores the counts of today; a count that would grow is refused."""
    for name, words in lists.items():
        found = uses_in_tree(Path.cwd(), words, LISTS[name])
        grown = [word.name for word in words if len(found[word.name]) > word.count]
        if grown:
            print(f"used more often than before: {', '.join(grown)}", file=sys.stderr)
            return 1
        write_list(here / name, [word.with_count(len(found[word.name])) for word in words])
    return 0


sys.exit(main(sys.argv[1:]))
