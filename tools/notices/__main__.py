"""Writes THIRD-PARTY-NOTICES.md: the crates that are part of the programs and libraries, with the texts of their licences.

    python3 tools/notices            writes the file
    python3 tools/notices --check    writes nothing; fails if it is not what the lock file says

Asks `cargo metadata`; the crates' sources must be on this machine, as they are after a build. What is needed to build or
to test alone, procedural macros included, is no part of the programs. Exit status: 0 if all is well, 1 if not, 2 for
wrong use.
"""

import json
import subprocess
import sys
from pathlib import Path

from notices import make, shipped

FILE = Path("THIRD-PARTY-NOTICES.md")
# What is given to users.
PROGRAMS = ("causeway-cli", "causeway-client", "causeway-comm", "causeway-cublas", "causeway-nccl-net", "causeway-nvml", "causeway-stubs", "causeway-fabric-perf")
METADATA = ["cargo", "metadata", "--locked", "--format-version", "1", "--filter-platform", "x86_64-unknown-linux-gnu"]


def main(arguments: list[str]) -> int:
    """Does what the command line asks for."""
    if arguments not in ([], ["--check"]):
        print(__doc__, file=sys.stderr)
        return 2
    metadata = json.loads(subprocess.run(METADATA, capture_output=True, check=True, text=True).stdout)
    crates = shipped(metadata, PROGRAMS)
    if lost := [crate.name for crate in crates if not crate.texts]:
        print(f"no text of a licence is found for these crates: {', '.join(lost)}", file=sys.stderr)
        return 1
    page = make(crates)
    if not arguments:
        FILE.write_text(page, encoding="utf-8")
    elif not FILE.is_file() or FILE.read_text(encoding="utf-8") != page:
        print(f"{FILE} is not what Cargo.lock says: run python3 tools/notices", file=sys.stderr)
        return 1
    return 0


sys.exit(main(sys.argv[1:]))
