"""What a header declares for programs: functions, structures and enumerations, with the comments in front of them."""

import re
from dataclasses import dataclass, field

NAMESPACE = re.compile(r"namespace ([\w:]+) \{")
STRUCT = re.compile(r"(?:typedef )?struct (\w+) \{")
ENUM = re.compile(r"enum class (\w+) : u32 \{(.*)")
VALUE = re.compile(r"\s*(\w+) = \w+,?(?:\s*// (.*))?$")
DEVICE = re.compile(r"(?:template <[^>]*>\s*)?__device__ inline ")
HOST = re.compile(r"[a-z][\w ]*[ *]+causeway_\w+\(")


@dataclass
class Function:
    """Functions that one comment is about: their declarations, without bodies, and the comment as a paragraph."""

    declarations: list[str]
    text: str

    @property
    def name(self) -> str:
        """What the first is called."""
        return re.search(r"(\w+)\(", self.declarations[0])[1]


@dataclass
class Structure:
    """A structure, as the header declares it, and its comment."""

    name: str
    text: str
    declaration: str


@dataclass
class Enumeration:
    """An enumeration, and what its values mean."""

    name: str
    text: str
    values: list[tuple[str, str]] = field(default_factory=list)


def paragraph(comment: list[str]) -> str:
    """The lines of a comment as one paragraph."""
    return " ".join(" ".join(line.removeprefix("//") for line in comment).split())


def declaration(lines: list[str]) -> str:
    """A declaration as a program may write it down: no body, nothing for the compiler alone."""
    text = "\n".join(line.rstrip() for line in lines)
    text = re.split(r"\s*\{|;", text, maxsplit=1)[0] + ";"
    text = re.sub(r"__device__ inline ", "", text)
    text = re.sub(r"(template <[^>]*>) (?=\w)", r"\1\n", text)
    # The lines behind the first one are set anew, below the first argument.
    first, *rest = text.split("\n")
    if first.startswith("template") and rest:
        return f"{first}\n{aligned(rest)}"
    return aligned([first, *rest])


def aligned(lines: list[str]) -> str:
    """A declaration of several lines, its arguments below each other."""
    indent = " " * (lines[0].index("(") + 1)
    return "\n".join([lines[0], *(indent + line.strip() for line in lines[1:])])


def read(text: str) -> list[Function | Structure | Enumeration]:
    """What is declared outside of namespaces for details, in the header's order."""
    found: list[Function | Structure | Enumeration] = []
    spaces: list[str] = []
    comment: list[str] = []
    # Whether the comment has had its declaration: one that follows at once is meant by it, too.
    last: Function | None = None
    lines = text.splitlines()
    at = 0
    while at < len(lines):
        line = lines[at]
        at += 1
        if opened := NAMESPACE.match(line):
            spaces.append(opened[1])
        elif line.startswith("} // namespace"):
            spaces.pop()
        elif any("detail" in space for space in spaces):
            continue
        elif line.startswith("//"):
            comment.append(line)
            last = None
            continue
        elif enum := ENUM.match(line):
            body = [enum[2]]
            while "}" not in body[-1]:
                body.append(lines[at])
                at += 1
            one_line = re.findall(r"(\w+) = \w+", body[0])
            values = [(value, "") for value in one_line]
            values += [(value[1], value[2] or "") for entry in body[1:] if (value := VALUE.match(entry))]
            found.append(Enumeration(enum[1], paragraph(comment), values))
        elif struct := STRUCT.match(line):
            body = [line]
            while not body[-1].startswith("}"):
                body.append(lines[at])
                at += 1
            found.append(Structure(struct[1], paragraph(comment), "\n".join(body)))
        elif DEVICE.match(line) or line.startswith("template <class") or HOST.match(line):
            taken = [line]
            while not re.search(r"[{;]", taken[-1]):
                taken.append(lines[at])
                at += 1
            if DEVICE.match(" ".join(taken)) or HOST.match(line):
                if last and not comment:
                    last.declarations.append(declaration(taken))
                else:
                    last = Function([declaration(taken)], paragraph(comment))
                    found.append(last)
                comment = []
                continue
        comment, last = [], None
    return found
