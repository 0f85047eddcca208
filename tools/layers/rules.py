"""Layer files: which modules a crate has, from top to bottom, and what breaks their order.

A layer file (`layers.toml` beside a crate's Cargo.toml):

    # From top to bottom. Modules on one line do not depend on each other. A module is a file or folder of src/,
    # and may be a folder inside one ("worker/engine"); lib.rs and main.rs are above all.
    layers = ["abi", "submit", "model remote", "process settings"]
    # How many files a circle inside one module may have: a ratchet, which only goes down.
    largest_circle = 3
    # Arrows that break the order and are known, each to be taken away.
    [exceptions]
    "model/heap.rs -> submit/mod.rs" = "why it is still there"

The file `crates/layers.toml` has the crates themselves in `layers`, in the same way: Cargo lets no circle pass, but would
let a transport know another one.
"""

import tomllib
from dataclasses import dataclass
from pathlib import Path

from graph import circles
from rust_modules import Crate

KNOWN_KEYS = {"layers", "largest_circle", "exceptions"}


@dataclass
class LayerFile:
    """A layer file, decoded."""

    height: dict[str, int]
    largest_circle: int
    exceptions: dict[str, str]

    @classmethod
    def read(cls, file: Path) -> "LayerFile":
        """Decodes a file; raises ValueError with a sentence where it makes no sense."""
        try:
            content = tomllib.loads(file.read_text(encoding="utf-8"))
        except tomllib.TOMLDecodeError as error:
            raise ValueError(f"{file} is no TOML: {error}.") from error
        unknown = set(content) - KNOWN_KEYS
        if unknown or not isinstance(content.get("layers"), list):
            what = f"an unknown key {sorted(unknown)[0]!r}" if unknown else "no list `layers`"
            raise ValueError(f"{file} has {what}; the keys are {', '.join(sorted(KNOWN_KEYS))}.")
        height: dict[str, int] = {}
        for level, modules in enumerate(reversed(content["layers"])):
            for module in modules.split():
                if module in height:
                    raise ValueError(f"{file} names the module {module!r} twice.")
                height[module] = level
        return cls(height, content.get("largest_circle", 1), content.get("exceptions", {}))

    def module(self, parts: tuple[str, ...]) -> str | None:
        """The module that a file is in: the longest named one."""
        for length in range(len(parts), 0, -1):
            module = "/".join(parts[:length]).removesuffix(".rs")
            if module in self.height:
                return module
        return None


def check_crate(folder: Path) -> list[str]:
    """What breaks the order of a crate that has a layer file, a sentence each."""
    layers = LayerFile.read(folder / "layers.toml")
    arrows = Crate(folder / "src").arrows()
    top = {Path("lib.rs"), Path("main.rs")}
    wrong, used = [], set()
    for file, targets in sorted(arrows.items()):
        here = layers.module(file.parts)
        if here is None and file not in top:
            wrong.append(f"{folder}/src/{file} is in no module of {folder}/layers.toml.")
            continue
        for target in sorted(targets):
            there = layers.module(target.parts)
            if file in top or (here is not None and here == there):
                continue
            arrow = f"{file} -> {target}"
            if arrow in layers.exceptions:
                used.add(arrow)
            elif target in top:
                wrong.append(f"{folder}/src: {arrow}: what {target} names is defined above all modules.")
            elif here is not None and there is not None and layers.height[there] >= layers.height[here]:
                wrong.append(f"{folder}/src: {arrow}: {here} may not use {there}, which is not below it.")
    for arrow in sorted(set(layers.exceptions) - used):
        wrong.append(f"{folder}/layers.toml: the exception {arrow!r} is needed no more.")
    wrong += _circles(folder, layers, arrows)
    return wrong


def _circles(folder: Path, layers: LayerFile, arrows: dict[Path, set[Path]]) -> list[str]:
    wrong = []
    kept = {
        file: {target for target in targets if f"{file} -> {target}" not in layers.exceptions}
        for file, targets in arrows.items()
    }
    for circle in circles(kept):
        modules = sorted({layers.module(file.parts) or str(file) for file in circle})
        files = ", ".join(map(str, circle))
        if len(modules) > 1:
            wrong.append(f"{folder}/src: a circle of {len(circle)} files through {', '.join(modules)}: {files}.")
        elif len(circle) > layers.largest_circle:
            limit = f"{folder}/layers.toml allows {layers.largest_circle}"
            wrong.append(f"{folder}/src: a circle of {len(circle)} files inside {modules[0]} ({limit}): {files}.")
    return wrong


def check_workspace(folder: Path) -> list[str]:
    """What breaks the order of the crates of a folder, a sentence each."""
    layers = LayerFile.read(folder / "layers.toml")
    packages = {}
    for manifest in sorted(folder.glob("**/Cargo.toml")):
        content = tomllib.loads(manifest.read_text(encoding="utf-8"))
        packages[content["package"]["name"]] = (manifest.parent, content.get("dependencies", {}))
    wrong = []
    for name, (place, dependencies) in packages.items():
        here = layers.module(place.relative_to(folder).parts)
        if here is None:
            wrong.append(f"{place} is in no layer of {folder}/layers.toml.")
            continue
        for dependency in sorted(set(dependencies) & set(packages)):
            there = layers.module(packages[dependency][0].relative_to(folder).parts)
            if there is not None and there != here and layers.height[there] >= layers.height[here]:
                wrong.append(f"{place}/Cargo.toml: {name} may not use {dependency}: {there} is not below {here}.")
    return wrong
