"""Which links lead nowhere."""

import re
import subprocess
from pathlib import Path
from urllib.parse import unquote

from markdown import Link, anchors, code, links, read, stray_rows

BOOK = Path("docs/src")
# A document that code, a script or a page names by its path from the root.
MENTION = re.compile(r"(?<![\w./(-])docs/[\w./-]+\.(?:md|json|toml|svg)\b")
# A file or folder of the tree that prose names.
PLACE = re.compile(r"(?:crates|tests|tools|scripts|bench|fuzz|examples)/[\w./-]+")
# A source file that a comment names.
COMMENT = re.compile(r"^\s*(?://[/!]?|#)\s(.*)$", re.M)
SOURCE = re.compile(r"(?<![\w./*<>{-])(?:[\w-]+/)*\w[\w-]*\.(?:rs|c|cu|cuh)\b(?![\w*])")
# Comments may name these: they are made, or are other projects'.
OTHER_SOURCES = {"bench.rs", "main.c", "main.rs", "mod.rs", "lib.rs"}
# What they name was there when they were written.
OF_THE_PAST = ("docs/lab/", "CHANGELOG.md", "THIRD-PARTY-NOTICES")
# Bytes of tests, and what others have written.
NOT_TEXT = ("fuzz/corpus/", "tests/corpus/", "Cargo.lock", "LICENSE", "THIRD-PARTY-NOTICES")


def files(root: Path) -> list[Path]:
    """All files of the tree, those that are not committed yet included."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    listed = subprocess.run(command, cwd=root, capture_output=True, check=True, text=True).stdout
    return sorted(Path(name) for name in listed.split("\0") if name and (root / name).is_file())


def check(root: Path, listed: list[Path]) -> list[str]:
    """A sentence for each link that leads nowhere, and for each page that the book does not name."""
    wrong = []
    for file in listed:
        if str(file).startswith(NOT_TEXT):
            continue
        text = read(root / file)
        if file.suffix == ".md":
            for link in links(text):
                if sentence := check_link(root, file, link):
                    wrong.append(f"{file}:{link.line}: {sentence}")
            wrong += [f"{file}:{line}: the row is in no table, since no `| --- |` is above it" for line in stray_rows(text)]
            if not str(file).startswith(OF_THE_PAST):
                wrong += [
                    f"{file}:{name.line}: names {name.target}, which does not exist"
                    for name in code(text)
                    if PLACE.fullmatch(name.target) and not (root / name.target).exists()
                ]
        # Tests of the tools invent trees of their own.
        if not (file.parts[0] == "tools" and file.name.startswith("test_")):
            for match in MENTION.finditer(text):
                if not (root / match[0]).exists():
                    line = text.count("\n", 0, match.start()) + 1
                    wrong.append(f"{file}:{line}: names {match[0]}, which does not exist")
    return wrong + check_sources(root, listed) + check_book(root, listed)


def check_sources(root: Path, listed: list[Path]) -> list[str]:
    """Comments that name a source file of which there is none: by its path from the root or a folder, or its name."""
    known = {str(Path(*file.parts[at:])) for file in listed for at in range(len(file.parts))}
    wrong = []
    for file in listed:
        if file.suffix not in {".rs", ".c", ".h", ".cu", ".cuh"} or file.parts[0] not in {"crates", "mpi", "device"}:
            continue
        text = read(root / file)
        for comment in COMMENT.finditer(text):
            for name in SOURCE.findall(comment[1]):
                if name not in known and name not in OTHER_SOURCES:
                    line = text.count("\n", 0, comment.start(1)) + 1
                    wrong.append(f"{file}:{line}: names {name}, which does not exist")
    return wrong


def check_link(root: Path, file: Path, link: Link) -> str | None:
    """What is wrong with a link, if anything is. Other sites are not asked."""
    if re.match(r"[a-z][a-z+.-]*:", link.target) or link.target.startswith("//"):
        return None
    path, _, name = unquote(link.target).partition("#")
    # An include of mdBook may name a part of the file behind a colon.
    path, _, part = path.partition(":")
    target = (root / file.parent / path).resolve() if path else (root / file).resolve()
    if not target.exists():
        return f"links to {link.target}, and {path} does not exist"
    if not target.is_relative_to(root.resolve()):
        return f"links to {link.target}, which is outside of the tree"
    book = (root / BOOK).resolve()
    if (root / file).resolve().is_relative_to(book) and not target.is_relative_to(book) and not part:
        return f"links to {link.target}, which is not in the book and would be missing there"
    if part and f"ANCHOR: {part} " not in read(target):
        return f"includes {link.target}, and {path} has no part {part!r}"
    if name and target.suffix == ".md" and name not in anchors(read(target)):
        return f"links to {link.target}, and {path or file.name} has no heading #{name}"
    return None


def check_book(root: Path, listed: list[Path]) -> list[str]:
    """Pages that the table of contents does not have."""
    contents = BOOK / "SUMMARY.md"
    if contents not in listed:
        return []
    named = {(BOOK / link.target.split("#")[0]) for link in links(read(root / contents))}
    pages = {file for file in listed if file.is_relative_to(BOOK) and file.suffix == ".md"} - {contents}
    return [f"{page}: is not in {contents}" for page in sorted(pages - named)]
