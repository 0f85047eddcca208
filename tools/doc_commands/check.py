"""What is wrong with commands, found without running them: those that need a GPU or root must not grow old either."""

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

OPTION = re.compile(r"^(--[a-z][a-z-]*|-[a-z])(?:=.*)?$")
TARGET = re.compile(r"^([a-z][a-z-]*):", re.MULTILINE)
ROW = re.compile(r"^\| `(.+?)`(?:,[^|]*)? \|", re.MULTILINE)


class Causeway:
    """What the program says that it takes."""

    def __init__(self, program: Path):
        self.program = program
        self.helps: dict[tuple[str, ...], str | None] = {}

    def help(self, *words: str) -> str | None:
        """The long help of a command; none for what is no command."""
        if words not in self.helps:
            done = subprocess.run([self.program, *words, "--help"], capture_output=True, text=True)
            self.helps[words] = done.stdout if done.returncode == 0 else None
        return self.helps[words]


def check_causeway(words: list[str], help_of: Callable[..., str | None]) -> str | None:
    """What is wrong with the words behind `causeway`, if anything is."""
    own = words[: words.index("--")] if "--" in words else words
    command: tuple[str, ...] = ()
    for word in own:
        if not re.fullmatch(r"[a-z][a-z-]*", word) or "Commands:" not in (help_of(*command) or ""):
            break
        if help_of(*command, word) is None:
            return f"`causeway {' '.join((*command, word))}` is no command"
        command = (*command, word)
    text = help_of(*command) or ""
    for word in own:
        option = OPTION.match(word)
        if option and not re.search(rf"(?<![\w-]){re.escape(option[1])}(?![\w-])", text):
            return f"`causeway {' '.join(command)}` has no option {option[1]}"
    return None


def check(text: str, help_of: Callable[..., str | None], targets: set[str]) -> list[str]:
    """What is wrong with a line of commands."""
    wrong = []
    text = re.sub(r"\s#\s.*$", "", text, flags=re.MULTILINE).replace("\\\n", " ")
    for part in re.split(r"[;|&]+", text):
        words = part.split()
        while words and re.fullmatch(r"[A-Za-z_]+=\S*", words[0]):
            words.pop(0)
        for place, word in enumerate(words):
            # Not what is only called so: a service, a folder.
            is_program = re.fullmatch(r"([^:]*/)?causeway", word) and place + 1 < len(words)
            if is_program and re.fullmatch(r"[a-z][a-z-]*|--[a-z-]+", words[place + 1]):
                sentence = check_causeway(words[place + 1 :], help_of)
                wrong += [sentence] if sentence else []
        if words[:1] == ["make"]:
            wrong += [f"there is no `make {name}`" for name in words[1:] if "=" not in name and name not in targets]
    return wrong


def targets(makefile: str) -> set[str]:
    """What `make` can be asked for."""
    return set(TARGET.findall(makefile))


def fragments(text: str) -> list[tuple[int, str, list[str]]]:
    """The messages that the rows of a page begin with: line, message, and its parts between `...`."""
    found = []
    for row in ROW.finditer(text.replace("`causeway serve`", "causeway serve")):
        parts = [part.strip(" :;,`") for part in row[1].split("...")]
        found.append((text.count("\n", 0, row.start()) + 1, row[1], [part for part in parts if len(part) > 3]))
    return found


def said_by(sources: str, part: str) -> bool:
    """Whether a program may say this. Backticks and breaks of lines do not count."""
    return part.replace("`", "") in sources


def sources(root: Path) -> str:
    """All texts of the programs, one blank for each break of a line."""
    files = sorted((root / "crates").glob("*/src/**/*.rs"))
    text = "\n".join(file.read_text(encoding="utf-8") for file in files)
    text = re.sub(r"\\\n\s*", "", text).replace("`", "")
    return re.sub(r"\{[^{}\n]*\}", "...", text)
