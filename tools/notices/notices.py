"""Which crates are part of the programs, and what their licences say."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

HEAD = """# Third-party notices

<!-- Made by tools/notices from Cargo.lock. Do not edit. -->

The programs and libraries of Causeway contain these crates. Causeway itself is under Apache-2.0 (`LICENSE`). Where a crate
may be used under one of several licences, all are named. A text that several crates have stands once.

"""

TEXT = re.compile(r"^(licen[cs]e|copying|copyright|notice|unlicense)", re.IGNORECASE)


@dataclass
class Crate:
    """A crate, and the texts in its folder that are about its licence."""

    name: str
    version: str
    licence: str
    home: str
    texts: list[str] = field(default_factory=list)


def shipped(metadata: dict, programs: Iterable[str]) -> list[Crate]:
    """The crates of others that the programs are linked with, by name."""
    packages = {package["id"]: package for package in metadata["packages"]}
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    ours = set(metadata["workspace_members"])
    waiting = [package for package in ours if packages[package]["name"] in programs]
    seen = set(waiting)
    while waiting:
        for dependency in nodes[waiting.pop()]["deps"]:
            package = packages[dependency["pkg"]]
            is_macro = any("proc-macro" in target["kind"] for target in package["targets"])
            is_linked = any(kind["kind"] is None for kind in dependency["dep_kinds"])
            if is_linked and not is_macro and package["id"] not in seen:
                seen.add(package["id"])
                waiting.append(package["id"])
    found = [crate(packages[package]) for package in seen - ours]
    return sorted(with_texts(found), key=lambda crate: (crate.name, crate.version))


def with_texts(crates: list[Crate]) -> list[Crate]:
    """The crates, of which those without a text have that of another one: some of a repository's crates are published
    without the file that lies in its root. It is one of the same repository under the same terms, or any under the same
    terms where these are the Apache License alone, whose text names nobody."""

    def same(crate: Crate) -> list[str]:
        others = [other for other in crates if other.texts and other.licence == crate.licence]
        near = [other for other in others if other.home == crate.home]
        if not near and crate.licence.startswith("Apache-2.0") and " OR " not in crate.licence:
            near = others
        return near[0].texts if near and crate.licence else []

    return [replace(crate, texts=crate.texts or same(crate)) for crate in crates]


def crate(package: dict) -> Crate:
    """What is known of one crate."""
    folder = Path(package["manifest_path"]).parent
    files = sorted(file for file in folder.iterdir() if file.is_file() and TEXT.match(file.name))
    texts = [clean(file.read_text(encoding="utf-8", errors="replace")) for file in files]
    home = package["repository"] or package["homepage"] or f"https://crates.io/crates/{package['name']}"
    return Crate(package["name"], package["version"], package["license"] or "", home, texts)


def clean(text: str) -> str:
    """A text without what makes equal ones differ."""
    return "\n".join(line.rstrip() for line in text.replace("\r\n", "\n").replace("\f", "").strip("\n").splitlines())


def make(crates: list[Crate]) -> str:
    """The page: a table of all, and then each text with those that have it."""
    rows = [f"| [{crate.name}]({crate.home}) | {crate.version} | {crate.licence} |" for crate in crates]
    parts = [HEAD, "| crate | version | licence |\n| --- | --- | --- |\n", "\n".join(rows), "\n"]
    holders: dict[str, list[str]] = {}
    for one in crates:
        for text in dict.fromkeys(one.texts):
            holders.setdefault(text, []).append(f"{one.name} {one.version}")
    for text, names in holders.items():
        parts.append(f"\n## {', '.join(names)}\n\n~~~~text\n{text}\n~~~~\n")
    return "".join(parts)
