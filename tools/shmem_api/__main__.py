"""Makes the table of the SHMEM facade's functions from its headers, between two lines of a page of the book.

    python3 tools/shmem_api            writes the table into docs/src/reference/nvshmem.md
    python3 tools/shmem_api --check    writes nothing; fails if the page has another table

The headers are expanded by the compiler's preprocessor, without CUDA's and the system's. Exit status: 0 if all is
well, 1 if not, 2 for wrong use.
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

INCLUDE = Path("device/include")
HEADERS = INCLUDE / "nvshmem"
PAGE = Path("docs/src/reference/nvshmem.md")
BEGIN, END = "<!-- functions: begin -->\n", "<!-- functions: end -->\n"

# A function's definition: by whom it is called, and its name.
DEFINITION = re.compile(
    r"(?P<host>__host__ )?(?P<device>__device__ )?(?:inline|template <class = void>)\s+[\w \*]*?"
    r"\b(?P<name>nvshmemx?_\w+)\("
)
FORMS = ("_on_stream", "_warp", "_block")


def expanded() -> str:
    """The headers as nvcc sees them."""
    with tempfile.TemporaryDirectory() as folder:
        for header in INCLUDE.glob("*/*"):
            for name in re.findall(r"#include <([^>]+)>", header.read_text(encoding="utf-8")):
                if not (INCLUDE / name).is_file():
                    stub = Path(folder) / name
                    stub.parent.mkdir(parents=True, exist_ok=True)
                    stub.touch()
        command = ["c++", "-E", "-P", "-x", "c++", "-nostdinc", "-nostdinc++", "-D__CUDACC__", "-I", folder]
        command += ["-I", str(INCLUDE), str(HEADERS / "nvshmemx.h")]
        return subprocess.run(command, capture_output=True, check=True, text=True).stdout


def type_lists() -> dict[str, list[str]]:
    """The names of types by what the page calls their list."""
    text = (HEADERS / "types.h").read_text(encoding="utf-8").replace("\\\n", " ")
    lists: dict[str, list[str]] = {}
    for name, body in re.findall(r"#define CAUSEWAY_SHMEM_(\w+)_TYPES\(X\)(.*)", text):
        inner = re.findall(r"CAUSEWAY_SHMEM_(\w+)_TYPES\(X\)", body)
        types = [found for other in inner for found in lists[other.lower()]]
        lists[name.lower()] = types + re.findall(r"\bX\((\w+),", body)
    return lists


def table() -> str:
    """The table, in Markdown."""
    lists = type_lists()
    names = sorted({name for types in lists.values() for name in types}, key=len, reverse=True)
    typed = re.compile(rf"(nvshmemx?)_({'|'.join(names)})_(\w+)")
    rows: dict[str, tuple[set[str], set[str], set[str]]] = {}
    for found in DEFINITION.finditer(expanded()):
        name, types = found["name"], set()
        by_type = typed.fullmatch(name)
        if by_type:
            name, types = f"{by_type[1]}_TYPE_{by_type[3]}", {by_type[2]}
        form = next((ending for ending in FORMS if name.endswith(ending)), "")
        forms = {"": {"thread"}, "_on_stream": {"stream"}, "_warp": {"warp"}, "_block": {"block"}}[form]
        if not form and not found["device"]:
            forms = {"host"}
        elif not form and found["host"]:
            forms = {"host", "thread"}
        base = re.sub(r"^nvshmemx?_", "", name.removesuffix(form))
        row = rows.setdefault(base, (set(), set(), set()))
        row[0].add(name)
        row[1].update(types)
        row[2].update(forms)
    labels = {frozenset(types): name for name, types in lists.items()}
    order = ("host", "stream", "thread", "warp", "block")
    lines = ["| function | types | called by the host, in a stream, by a thread, a warp, a block |"]
    lines += ["| --- | --- | --- |"]
    for base in sorted(rows, key=lambda base: (base.startswith("TYPE_"), base)):
        spelled, types, forms = rows[base]
        name = min(spelled, key=lambda name: (len(name), name))
        listed = labels[frozenset(types)].replace("_", " ") if types else ""
        lines.append(f"| `{name}` | {listed} | {', '.join(one for one in order if one in forms)} |")
    kinds = ["", "| types | TYPE |", "| --- | --- |"]
    kinds += [f"| {name.replace('_', ' ')} | {', '.join(types)} |" for name, types in lists.items()]
    return "\n".join(lines + kinds) + "\n"


def main(arguments: list[str]) -> int:
    """Does what the command line asks for."""
    if arguments not in ([], ["--check"]):
        print(__doc__, file=sys.stderr)
        return 2
    page = PAGE.read_text(encoding="utf-8")
    before, behind = page.split(BEGIN)[0], page.split(END)[1]
    made = f"{before}{BEGIN}{table()}{END}{behind}"
    if not arguments:
        PAGE.write_text(made, encoding="utf-8")
    elif made != page:
        print(f"{PAGE} has not the functions of {HEADERS}: run python3 tools/shmem_api", file=sys.stderr)
        return 1
    return 0


sys.exit(main(sys.argv[1:]))
