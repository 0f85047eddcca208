"""Which files are handed out, and under which names?

A *tree* is `bin/causeway` and, in `lib/causeway`, the libraries under the names that programs ask for.
`causeway` finds them there by itself, wherever the tree lies. Wheel, packages and images are all made from
one."""

import shutil
from pathlib import Path

STUBS = "libcauseway_stubs.so"

# What is in `lib/causeway`: the name, and what cargo calls the library.
LIBRARIES = {
    "libcuda.so.1": "libcuda.so",
    "libnvidia-ml.so.1": "libcauseway_nvml.so",
    STUBS: STUBS,
    "libcauseway_comm.so": "libcauseway_comm.so",
}

# Second names, as links within the folder.
LINKS = {
    "libcuda.so": "libcuda.so.1",
    "libnvidia-ml.so": "libnvidia-ml.so.1",
    "libnvcuvid.so.1": STUBS,
    "libnvidia-encode.so.1": STUBS,
    "libnvidia-opticalflow.so.1": STUBS,
    "libnvoptix.so.1": STUBS,
}


class LayoutError(Exception):
    """A tree cannot be made."""


def stage(built: Path, tree: Path) -> None:
    """Makes a tree of what cargo has built."""
    lost = [name for name in ("causeway", *LIBRARIES.values()) if not (built / name).is_file()]
    if lost:
        raise LayoutError(
            f"{built} lacks {', '.join(lost)}: build causeway-cli, -client, -comm, -nvml and -stubs first"
        )
    if tree.exists():
        shutil.rmtree(tree)
    libraries = tree / "lib/causeway"
    (tree / "bin").mkdir(parents=True)
    libraries.mkdir(parents=True)
    install(built / "causeway", tree / "bin/causeway")
    for name, cargo in LIBRARIES.items():
        install(built / cargo, libraries / name)
    for name, target in LINKS.items():
        (libraries / name).symlink_to(target)


def install(source: Path, target: Path) -> None:
    """Copies what can be executed."""
    shutil.copyfile(source, target)
    target.chmod(0o755)


def objects(tree: Path) -> list[Path]:
    """The program and the libraries of a tree, without second names."""
    files = [tree / "bin/causeway", *(tree / "lib/causeway" / name for name in LIBRARIES)]
    if lost := [str(file) for file in files if not file.is_file()]:
        raise LayoutError(f"these are not there: {', '.join(lost)}: make the tree with `make portable`")
    return files
