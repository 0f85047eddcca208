"""The commands of the page "Install", as they are run on a bare machine."""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools/doc_commands"))

from blocks import read  # noqa: E402

PAGE = ROOT / "docs/src/guides/install.md"
# The bare machine is client and server in one.
HERE = "127.0.0.1"


def commands(mark: str) -> list[str]:
    """The commands of the blocks with a mark."""
    found, wrong = read(PAGE.read_text(encoding="utf-8"))
    if wrong:
        raise ValueError(f"{PAGE}: {wrong}")
    return [command.text for command in found if command.how == mark]


def here(text: str, key_file: str) -> str:
    """A command as it is run on a machine that is alone: the server is itself, and a key is pasted by
    nobody."""
    text = re.sub(r"\s#\s.*$", "", text, flags=re.MULTILINE).replace("gpu-box", HERE)
    if re.match(r"causeway key add\b", text):
        show = f"causeway key show --key-file {key_file}"
        text = f"{show} | grep -o 'causeway://[^@]*' | head -n 1 | sed 's/$/@{HERE}/' | {text}"
    return text


def script(mark: str, key_file: str, before: str = "", after: str = "") -> str:
    """The commands as a script that stops at the first that fails and says which. It prints how many seconds had passed
    after each, and last how many the commands of the book took."""
    lines = [
        "set -e -o pipefail",
        "export HOME=/root LANG=C.UTF-8 DEBIAN_FRONTEND=noninteractive",
        "cd /root",
        before,
    ]
    lines.append("begin=$(date +%s.%N)")
    for text in commands(mark):
        lines.append(f"echo {quoted('$ ' + text)}")
        lines.append(here(text, key_file))
        lines.append('echo "after $(awk "BEGIN { print $(date +%s.%N) - $begin }") s"')
    lines.append("end=$(date +%s.%N)")
    lines.append(after)
    lines.append('echo "took $(awk "BEGIN { print $end - $begin }")"')
    return "\n".join(lines) + "\n"


def quoted(text: str) -> str:
    """A text as one word for a shell."""
    return "'" + text.replace("'", "'\\''") + "'"
