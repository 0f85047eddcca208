"""Makes the book's page about performance, and its plots, from docs/baselines.json.

    python3 tools/performance            writes docs/src/performance.md and docs/src/images/performance-*.svg
    python3 tools/performance --check    writes nothing; fails if they are not what the file makes, or if a measurement is not
                                         in the lab note that it names

What the file may say: `tools/performance/baselines.py`. Exit status: 0 if all is well, 1 if not, 2 for wrong use.
"""

import sys
from pathlib import Path

from baselines import check, read
from page import make
from plot import draw

BASELINES = Path("docs/baselines.json")
NOTES = Path("docs/lab")
PAGE = Path("docs/src/performance.md")
IMAGES = Path("docs/src/images")


def main(arguments: list[str]) -> int:
    """Does what the command line asks for."""
    if arguments not in ([], ["--check"]):
        print(__doc__, file=sys.stderr)
        return 2
    try:
        groups = read(BASELINES.read_text(encoding="utf-8"))
        wrong = check(groups, NOTES)
        made = {PAGE: make(groups)} | {IMAGES / f"performance-{group.id}.svg": draw(group) for group in groups}
    except (ValueError, KeyError) as error:
        wrong, made = [f"{BASELINES}: {error}"], {}
    old = set(IMAGES.glob("performance-*.svg")) - made.keys()
    if not wrong and not arguments:
        for path, text in made.items():
            path.write_text(text, encoding="utf-8")
        for path in old:
            path.unlink()
    elif arguments:
        for path, text in made.items():
            if not path.is_file() or path.read_text(encoding="utf-8") != text:
                wrong.append(f"{path} is not what {BASELINES} makes: run python3 tools/performance")
        wrong += [f"{path} belongs to no group of {BASELINES}" for path in old]
    for sentence in wrong:
        print(sentence, file=sys.stderr)
    return 1 if wrong else 0


sys.exit(main(sys.argv[1:]))
