"""Checks that the modules of each crate use only modules below them, and that no circle of files goes through several.

    python3 tools/layers            all crates, each of which has a layer file, and the crates among each other
    python3 tools/layers --circles  prints the circles of files of every crate
    python3 tools/layers --arrows CRATE-FOLDER   prints what each file of a crate names

What a layer file says, and how: `tools/layers/rules.py`. Exit status: 0 if all is well, 1 if not, 2 for wrong use.
"""

import sys
from pathlib import Path

from graph import circles
from rules import check_crate, check_workspace
from rust_modules import Crate


def sources(root: Path) -> list[Path]:
    """The folders of the crates below `root`."""
    return sorted(manifest.parent for manifest in root.glob("crates/**/Cargo.toml"))


def print_circles(root: Path) -> None:
    """Prints a line for each circle of each crate."""
    for folder in sources(root):
        for circle in circles(Crate(folder / "src").arrows()):
            print(f"{folder.relative_to(root)}: {len(circle)} files: {', '.join(map(str, circle))}")


def main(arguments: list[str]) -> int:
    """Does what the command line asks for."""
    root = Path.cwd()
    match arguments:
        case []:
            try:
                wrong = check_workspace(Path("crates"))
                for folder in sources(root):
                    wrong += check_crate(folder.relative_to(root))
            except (ValueError, OSError) as error:
                wrong = [str(error)]
            for sentence in wrong:
                print(sentence, file=sys.stderr)
            return 1 if wrong else 0
        case ["--circles"]:
            print_circles(root)
            return 0
        case ["--arrows", folder]:
            for file, targets in sorted(Crate(Path(folder) / "src").arrows().items()):
                print(f"{file}: {' '.join(sorted(map(str, targets)))}")
            return 0
        case _:
            print(__doc__, file=sys.stderr)
            return 2


sys.exit(main(sys.argv[1:]))
