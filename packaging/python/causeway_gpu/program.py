"""The command `causeway`: becomes the program that is in this package."""

import os
import sys

PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", "causeway")


def main() -> None:
    """Becomes the program, with the arguments of this process."""
    try:
        os.execv(PROGRAM, [PROGRAM, *sys.argv[1:]])
    except OSError as cause:
        sys.exit(f"causeway: {PROGRAM} cannot be started: {cause}")
