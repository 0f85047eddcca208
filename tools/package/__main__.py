"""Makes what is handed out from what cargo has built.

    python3 tools/package stage BUILT TREE       the files of BUILT, a folder of cargo's, under the names that
                                                 programs ask for
    python3 tools/package check TREE             fails if a program or library needs more than glibc 2.28, or is
                                                 not stripped
    python3 tools/package wheel TREE OUT [TAG]   the wheel `causeway-gpu`; without TAG that of manylinux_2_28
    python3 tools/package deb TREE OUT           packages for Debian and Ubuntu
    python3 tools/package rpm TREE OUT           packages for Red Hat's systems and SUSE's
    python3 tools/package tar TREE OUT           the tree as an archive, with the module file for Lmod
    python3 tools/package sums OUT               a bill of materials and the checksums of all that is in OUT

`make portable`, `make wheel` and `make packages` call it. Exit status: 0 if all is well, 1 if not, 2 for wrong use.
"""

import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import archive
import deb
import elf
import layout
import packages
import rpm
import sbom
import wheel

# What RHEL 8, Debian 10 and Ubuntu 20.04 have, or more.
GLIBC = packages.GLIBC
ROOT = Path(__file__).resolve().parents[2]


def version() -> str:
    """The version of the workspace."""
    manifest = (ROOT / "Cargo.toml").read_text(encoding="utf-8")
    return re.search(r'^\[workspace\.package\]\nversion = "(.+)"$', manifest, re.MULTILINE)[1]


def moment() -> int:
    """The age of all files that are made, in seconds since 1970: that of the commit, so that the same tree
    gives the same packages."""
    if given := os.environ.get("SOURCE_DATE_EPOCH"):
        return int(given)
    command = ["git", "-C", str(ROOT), "log", "-1", "--format=%ct"]
    done = subprocess.run(command, capture_output=True, text=True)
    return int(done.stdout) if done.returncode == 0 else 0


def check(tree: Path) -> int:
    """Says what the files of a tree need."""
    wrong = []
    for file in layout.objects(tree):
        found = elf.needs(file)
        glibc = ".".join(map(str, found.glibc))
        print(
            f"{file.relative_to(tree)}: glibc {glibc}; {', '.join(sorted(found.libraries))}; {file.stat().st_size / (1 << 20):.1f} MiB"
        )
        wrong += elf.wrong(file.name, found, GLIBC)
    for sentence in wrong:
        print(sentence, file=sys.stderr)
    return 1 if wrong else 0


def stage(built: Path, tree: Path) -> int:
    """Makes a tree, and says what is wrong with its files whatever machine they were built for."""
    layout.stage(built, tree)
    wrong = [
        sentence for file in layout.objects(tree) for sentence in elf.misbuilt(file.name, elf.needs(file))
    ]
    for sentence in wrong:
        print(sentence, file=sys.stderr)
    return 1 if wrong else 0


def make_wheel(tree: Path, out: Path, tag: str = wheel.PORTABLE) -> None:
    """Makes the wheel and says where it is."""
    files = wheel.contents(tree, ROOT / "packaging/python", ROOT, version(), tag)
    print(wheel.write(files, version(), tag, out))


def ask_program(tree: Path, folder: Path) -> Path:
    """What the program says of itself: manual pages, and for each shell a file with its name for completions."""
    program = tree / "bin/causeway"
    if subprocess.run([program, "man", "--help"], capture_output=True).returncode != 0:
        print(
            "packages: NOT in them: manual pages and completions, which this causeway does not write",
            file=sys.stderr,
        )
        return folder
    subprocess.run([program, "man", folder], check=True, stdout=subprocess.DEVNULL)
    for shell in packages.COMPLETIONS:
        with (folder / shell).open("wb") as file:
            subprocess.run([program, "completions", shell], check=True, stdout=file)
    return folder


def make_packages(kind, tree: Path, out: Path) -> None:
    """Makes all packages of a kind and says where they are."""
    layout.objects(tree)
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        for package in packages.packages(tree, ROOT, ask_program(tree, Path(folder)), kind.ZSH, version()):
            print(kind.build(package, version(), out, moment()))
    for name in layout.DEVICE_FILES:
        if not (tree / "lib/causeway/device" / name).is_file():
            print(
                f"packages: NOT in them: {name}, which scripts/portable-device.sh has not built",
                file=sys.stderr,
            )


def sums(out: Path) -> None:
    """Writes the bill of materials, and the checksums of all files beside them."""
    sys.path.insert(0, str(ROOT / "tools/notices"))
    from notices import shipped

    command = [
        "cargo",
        "metadata",
        "--locked",
        "--format-version",
        "1",
        "--filter-platform",
        "x86_64-unknown-linux-gnu",
    ]
    metadata = json.loads(
        subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    )
    programs = (
        "causeway-cli",
        "causeway-client",
        "causeway-comm",
        "causeway-fabric-perf",
        "causeway-cublas",
        "causeway-nccl-net",
        "causeway-nvml",
        "causeway-stubs",
    )
    crates = {(crate.name, crate.version) for crate in shipped(metadata, programs)}
    made = ("SHA256SUMS", "causeway.cdx.json")
    digest = {
        file.name: hashlib.sha256(file.read_bytes()).hexdigest()
        for file in sorted(out.iterdir())
        if file.is_file() and file.name not in made
    }
    bill = json.dumps(sbom.bill(metadata, crates, digest, version(), moment()), indent=2) + "\n"
    (out / "causeway.cdx.json").write_text(bill, encoding="utf-8")
    digest["causeway.cdx.json"] = hashlib.sha256(bill.encode()).hexdigest()
    lines = [f"{value}  {name}\n" for name, value in sorted(digest.items())]
    (out / "SHA256SUMS").write_text("".join(lines), encoding="utf-8")
    print(out / "SHA256SUMS")


def main(arguments: list[str]) -> int:
    """Does what the command line asks for."""
    try:
        match [arguments[0], *map(Path, arguments[1:])] if arguments else []:
            case ["stage", built, tree]:
                return stage(built, tree)
            case ["check", tree]:
                return check(tree)
            case ["wheel", tree, out]:
                make_wheel(tree, out)
            case ["wheel", tree, out, tag]:
                make_wheel(tree, out, str(tag))
            case ["deb", tree, out]:
                make_packages(deb, tree, out)
            case ["rpm", tree, out]:
                make_packages(rpm, tree, out)
            case ["tar", tree, out]:
                print(archive.build(tree, ROOT, version(), out, moment()))
            case ["sums", out]:
                sums(out)
            case _:
                print(__doc__, file=sys.stderr)
                return 2
    except layout.LayoutError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


sys.exit(main(sys.argv[1:]))
