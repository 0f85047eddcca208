"""Uses of listed words in the identifiers, the prose and the safety comments of the tree."""

import re
import subprocess
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

CODE_FOLDERS = ("crates/", "mpi/", "device/", "tools/", "bench/")
CODE_SUFFIXES = (".rs", ".c", ".h", ".cu", ".cuh", ".py")
# Declarations of foreign libraries keep the names that those have.
FOREIGN = re.compile(r"(^|/)(sys|ffi|bindings)(\.rs|/)")
TESTS = re.compile(r"(^|/)(tests?|fuzzing)(\.rs|/)|(^|/)test_[^/]*$|(^|/)tools/words/")
# The history of the project, and measurements of a day, stay as they were written.
OLD_PROSE = re.compile(r"^(docs/lab/|CHANGELOG\.md|THIRD-PARTY)")

COMMENT_OR_STRING = re.compile(
    r'//[^\n]*|/\*.*?\*/|r(#*)".*?"\1|"(?:[^"\\]|\\.)*"|\'(?:[^\'\\\n]|\\.)\'', re.DOTALL
)
PYTHON_COMMENT_OR_STRING = re.compile(r'#[^\n]*|"""(?:.*?)"""|"(?:[^"\\\n]|\\.)*"|\'(?:[^\'\\\n]|\\.)*\'', re.DOTALL)
TEST_MODULE = re.compile(r"#\[cfg\(test\)\]\nmod \w+ \{")
IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
SAFETY_COMMENT = re.compile(r"//\s*SAFETY:\s*(.*)")

# Yields line, text as it is written, and text that is searched, of a file.
Reader = Callable[[Path, str], Iterator[tuple[int, str, str]]]


@dataclass(frozen=True)
class Word:
    """A word that is to become rarer, and how often it may be used."""

    name: str
    pattern: re.Pattern[str]
    allowed: re.Pattern[str] | None
    count: int

    def with_count(self, count: int) -> "Word":
        """The same word with another count."""
        return replace(self, count=count)


def read_list(path: Path) -> list[Word]:
    """The words of a list: name, expression, allowed expressions with commas between them, count; tabs between them."""
    words = []
    for line in path.read_text().splitlines():
        if not line or line.startswith("#"):
            continue
        name, pattern, allowed, count = line.split("\t")
        alternatives = "|".join(f"(?:{one})" for one in allowed.split(",")) if allowed != "-" else None
        words.append(Word(name, re.compile(pattern), re.compile(alternatives) if alternatives else None, int(count)))
    return words


def write_list(path: Path, words: Iterable[Word]) -> None:
    """Writes the counts of `words` into the list, and leaves everything else as it is."""
    counts = {word.name: str(word.count) for word in words}
    lines = []
    for line in path.read_text().splitlines():
        fields = line.split("\t")
        if fields[0] in counts and not line.startswith("#"):
            fields[3] = counts[fields[0]]
        lines.append("\t".join(fields))
    path.write_text("\n".join(lines) + "\n")


def uses_in_tree(root: Path, words: list[Word], read: Reader) -> dict[str, list[str]]:
    """Every use of each word, as `file:line: text`."""
    found: dict[str, list[str]] = {word.name: [] for word in words}
    for path in tracked_files(root):
        for line, written, searched in read(root, path):
            for word in words:
                if word.pattern.search(searched) and not (word.allowed and word.allowed.search(written)):
                    found[word.name].append(f"{path}:{line}: {written.strip()}")
    return found


def tracked_files(root: Path) -> list[str]:
    """The files that git knows and that exist, as paths below the root."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=root, check=True, capture_output=True, text=True).stdout
    return [path for path in listed.split("\0") if path and (root / path).is_file()]


def identifiers(root: Path, path: str) -> Iterator[tuple[int, str, str]]:
    """Line, identifier, and its words in lower case with underscores, of a source file outside the tests."""
    if not path.startswith(CODE_FOLDERS) or not path.endswith(CODE_SUFFIXES) or TESTS.search(path) or FOREIGN.search(path):
        return
    text = TEST_MODULE.split((root / path).read_text(errors="replace"))[0]
    hidden = PYTHON_COMMENT_OR_STRING if path.endswith(".py") else COMMENT_OR_STRING
    code = hidden.sub(lambda match: "\n" * match.group(0).count("\n"), text)
    for number, line in enumerate(code.splitlines(), 1):
        for match in IDENTIFIER.finditer(line):
            written = match.group(0)
            yield number, written, "_".join(PARTS.findall(written)).lower()


def prose(root: Path, path: str) -> Iterator[tuple[int, str, str]]:
    """Line and text of Markdown outside code blocks, of doc comments, and of strings that a program may print."""
    if OLD_PROSE.match(path):
        return
    if path.endswith(".md"):
        is_code = False
        for number, line in enumerate((root / path).read_text().splitlines(), 1):
            if line.lstrip().startswith("```"):
                is_code = not is_code
            elif not is_code:
                yield number, line, line
    elif path.endswith(".rs") and path.startswith("crates/") and not TESTS.search(path):
        for number, line in enumerate((root / path).read_text().splitlines(), 1):
            stripped = line.lstrip()
            if stripped.startswith(("//!", "///")) or '"' in stripped:
                yield number, line, line


def safety(root: Path, path: str) -> Iterator[tuple[int, str, str]]:
    """Line and text of the first line of each safety comment, tests included."""
    if path.endswith(".rs"):
        for number, line in enumerate((root / path).read_text().splitlines(), 1):
            if match := SAFETY_COMMENT.search(line):
                yield number, line, match.group(1)
