"""Rows of a table of modules, and the table of a file."""


import re
from pathlib import Path

HEAD = ["//! | module | contents |", "//! | --- | --- |"]
DECLARED = re.compile(r"^(?P<test>#\[cfg\(test\)\]\s*\n)?(?:#\[[^\n]*\]\s*\n)*(?:pub(?:\([^)]*\))? )?mod (?P<name>\w+);", re.M)


class HeaderError(Exception):
    """A module whose header gives no row."""


def first_sentence(file: Path) -> str:
    """The first sentence of a file's header, without its full stop."""
    lines = []
    for line in file.read_text().splitlines():
        if not line.startswith("//!") or line.strip() == "//!":
            break
        lines.append(line[3:].strip())
    text = " ".join(lines)
    sentence = re.match(r"(.+?)\.(?=\s|$)", text)
    if sentence is None or "?" in sentence[1]:
        raise HeaderError(f"{file}: the header does not begin with a sentence that ends with a full stop")
    if "|" in sentence[1]:
        raise HeaderError(f"{file}: the first sentence of the header has a `|`, which a table cannot hold")
    # Links are relative to the module, not to its parent.
    return re.sub(r"\[(`[^`]+`)\]", r"\1", sentence[1])


def module_file(parent: Path, name: str) -> Path:
    """The file of a module that `parent` declares."""
    folder = parent.parent if parent.name in ("lib.rs", "main.rs", "mod.rs") else parent.with_suffix("")
    for file in (folder / f"{name}.rs", folder / name / "mod.rs"):
        if file.is_file():
            return file
    raise HeaderError(f"{parent}: there is no file of its module `{name}`")


def table_of(parent: Path, text: str, rows: list[str]) -> list[str]:
    """The lines of the table that `parent` should have, given the rows that it has."""
    declared = {found["name"]: found for found in DECLARED.finditer(text) if not found["test"]}
    if not declared:
        raise HeaderError(f"{parent}: the header has a table of modules, and the file declares none")
    named = [name for row in rows for name in re.findall(r"`(\w+)`", row.split("|")[1]) if name in declared]
    order = list(dict.fromkeys([*named, *declared]))
    lines = list(HEAD)
    for name in order:
        # No links: rustdoc lists public modules with links by itself, and a name alone can be a macro's or a function's, too.
        lines.append(f"//! | `{name}` | {first_sentence(module_file(parent, name))} |")
    return lines


def renewed(file: Path) -> tuple[str, str]:
    """The text of a file, and what it should be."""
    text = file.read_text()
    lines = text.splitlines()
    ours = [at for at, line in enumerate(lines) if re.match(r"//! \| *[Mm]odule *\|", line)]
    if not ours:
        if any(re.match(r"//! \|.*\| *[Mm]odule *\|$", line) for line in lines):
            raise HeaderError(f"{file}: a table of modules begins with `{HEAD[0]}`")
        return text, text
    start = ours[0]
    end = start
    while end < len(lines) and lines[end].startswith("//! |"):
        end += 1
    lines[start:end] = table_of(file, text, lines[start + 2 : end])
    return text, "\n".join(lines) + "\n"
