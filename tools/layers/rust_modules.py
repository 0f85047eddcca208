"""Reads a crate's modules and which of its files names which other, from the text of its `use` declarations and paths."""

import re
from dataclasses import dataclass, field
from pathlib import Path

# A comment, a string (raw ones too), or a character; what is no character is a lifetime and stays.
NOT_CODE = re.compile(
    r"//[^\n]*"
    r"|/\*.*?\*/"
    r'|b?r(?P<hashes>#*)".*?"(?P=hashes)'
    r'|b?"(?:\\.|[^"\\])*"'
    r"|b?'(?:\\[^\n]{1,10}?|[^\\\n'])'",
    re.DOTALL,
)
MODULE = re.compile(r"(?P<test>#\[cfg\([^\]]*\btest\b[^\]]*\)\]\s*)?(?:#\[path = \"\"\]\s*)?(?:pub(?:\([^)]*\))?\s+)?\bmod\s+(?P<name>\w+)\s*(?P<end>[;{])")
USE = re.compile(r"\buse\s+(?P<tree>[^;]+);")
PATH = re.compile(r"(?<![\w:])(?:\$?(?:crate|self|super)|[a-z_]\w*)(?:::\w+)+")
# What a procedural macro writes names files of the crate that it writes for.
QUOTED = re.compile(r"\bquote!\s*(?P<open>[({\[])")
# Where something may be named says nothing about what its file names.
VISIBILITY = re.compile(r"\bpub\(in [^)]*\)")
MACRO = re.compile(r"\bmacro_rules!\s+(\w+)")


@dataclass
class Module:
    """One file of a crate, as a module."""

    path: tuple[str, ...]
    file: Path
    text: str
    children: set[str] = field(default_factory=set)
    # What its `use` declarations bring in: name -> path from the crate's root.
    imports: dict[str, tuple[str, ...]] = field(default_factory=dict)


def without_comments_and_strings(text: str) -> str:
    """The code alone; what is left out leaves its line ends."""
    return NOT_CODE.sub(lambda found: '""' if found[0][-1] == '"' else "\n" * found[0].count("\n"), text)


def block_end(text: str, start: int) -> int:
    """The position behind the bracket that closes the one at `start`."""
    depth, here = 0, text[start]
    closing = {"{": "}", "(": ")", "[": "]"}[here]
    for position in range(start, len(text)):
        depth += {here: 1, closing: -1}.get(text[position], 0)
        if depth == 0:
            return position + 1
    return len(text)


def without_tests(text: str) -> str:
    """Leaves out modules that are built for tests only, inline ones and declarations of files."""
    kept, position = [], 0
    for found in MODULE.finditer(text):
        if found["test"] and found.start() >= position:
            kept.append(text[position : found.start()])
            position = found.end() if found["end"] == ";" else block_end(text, found.end() - 1)
    return "".join(kept) + text[position:]


def without_quotes(text: str) -> str:
    """Leaves out what `quote!` writes."""
    kept, position = [], 0
    for found in QUOTED.finditer(text):
        if found.start() >= position:
            kept.append(text[position : found.start()])
            position = block_end(text, found.start("open"))
    return "".join(kept) + text[position:]


def leaves(tree: str) -> list[tuple[tuple[str, ...], str]]:
    """The paths of a `use` tree, each with the name that it brings in."""
    tree = tree.strip()
    brace = tree.find("{")
    if brace < 0:
        path, _, name = tree.partition(" as ")
        parts = tuple(part.strip() for part in path.split("::") if part.strip())
        if parts and parts[-1] == "self":
            parts = parts[:-1]
        return [(parts, name.strip() or (parts[-1] if parts else ""))]
    prefix = tuple(part.strip() for part in tree[:brace].split("::") if part.strip())
    found, depth, start = [], 0, brace + 1
    for position in range(brace + 1, len(tree)):
        character = tree[position]
        if depth == 0 and character in ",}":
            piece = tree[start:position].strip()
            if piece == "self":
                found.append((prefix, prefix[-1]))
            elif piece:
                found += [(prefix + path, name) for path, name in leaves(piece)]
            start = position + 1
            if character == "}":
                break
        depth += {"{": 1, "}": -1}.get(character, 0)
    return found


class Crate:
    """The modules of one crate, by path from its root."""

    def __init__(self, source: Path):
        self.source = source
        self.modules: dict[tuple[str, ...], Module] = {}
        self.macros: dict[str, tuple[str, ...]] = {}
        root = next((source / name for name in ("lib.rs", "main.rs") if (source / name).is_file()), None)
        if root is None:
            raise FileNotFoundError(f"{source} holds neither lib.rs nor main.rs.")
        self._read((), root)
        for module in self.modules.values():
            self._read_imports(module)

    def _read(self, path: tuple[str, ...], file: Path) -> None:
        raw = file.read_text(encoding="utf-8")
        module = Module(path, file, without_quotes(without_tests(without_comments_and_strings(raw))))
        self.modules[path] = module
        for macro in MACRO.findall(module.text):
            self.macros[macro] = path
        folder = file.parent if file.stem in ("mod", "lib", "main") else file.with_suffix("")
        for found in MODULE.finditer(module.text):
            if found["end"] == "{":
                continue
            name = found["name"]
            beside = re.search(rf'#\[path = "([^"]+)"\]\s*(?:pub(?:\([^)]*\))?\s+)?mod {name};', raw)
            candidates = [file.parent / beside[1]] if beside else [folder / f"{name}.rs", folder / name / "mod.rs"]
            child = next((candidate for candidate in candidates if candidate.is_file()), None)
            # What a build script writes is no file of the tree.
            if child is not None:
                module.children.add(name)
                self._read((*path, name), child)

    def _absolute(self, module: Module, path: tuple[str, ...]) -> tuple[str, ...] | None:
        """The path from the crate's root, or None where it leads into another crate."""
        first = path[0].lstrip("$")
        if first == "crate":
            return path[1:]
        if first == "self":
            return module.path + path[1:]
        if first == "super":
            up = 0
            while up < len(path) and path[up] == "super":
                up += 1
            # More `super` than levels: an inline module of the file.
            return module.path[: max(len(module.path) - up, 0)] + path[up:]
        if first in module.children:
            return module.path + path
        return None

    def _read_imports(self, module: Module) -> None:
        for found in USE.finditer(module.text):
            for path, name in leaves(found["tree"]):
                absolute = self._absolute(module, path) if path else None
                if absolute is not None:
                    # Each glob counts: none of them has a name of its own.
                    module.imports["::".join(path) if name == "*" else name] = absolute

    def owner(self, path: tuple[str, ...], is_root_macro: bool = True) -> tuple[str, ...]:
        """The module that an item's path leads to, re-exports followed."""
        for _ in range(16):
            known = next(path[:length] for length in range(len(path), -1, -1) if path[:length] in self.modules)
            if len(known) == len(path):
                return known
            name = path[len(known)]
            onward = self.modules[known].imports.get(name)
            if known == () and onward is None and is_root_macro and name in self.macros:
                return self.macros[name]
            if onward is None or onward == path[: len(known) + 1]:
                return known
            path = onward + path[len(known) + 1 :]
        return known

    def arrows(self) -> dict[Path, set[Path]]:
        """For each file the others that it names, relative to the crate's sources."""
        found: dict[Path, set[Path]] = {}
        for module in self.modules.values():
            targets = {self.owner(path) for path in module.imports.values()}
            body = VISIBILITY.sub("pub", USE.sub("", module.text))
            for path in PATH.findall(body):
                absolute = self._absolute(module, tuple(path.split("::")))
                if absolute is not None:
                    targets.add(self.owner(absolute))
            file = module.file.relative_to(self.source)
            found[file] = {self.modules[target].file.relative_to(self.source) for target in targets} - {file}
        return found
