"""What a program or a library needs of the machine that it runs on, as `readelf` prints it."""

import re
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

# The libraries that every glibc system has, be it RHEL 8 or Debian. libgcc_s is part of none of our files'
# needs: what unwinds is linked in.
OF_GLIBC = {"libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1", "ld-linux-x86-64.so.2",
            "ld-linux-aarch64.so.1"}  # fmt: skip

# What ours are there for to be found with: the driver's libraries, our own, and the MPI of the interposer.
OF_OTHERS = {"libcuda.so.1", "libnvidia-ml.so.1", "libcauseway_comm.so", "libmpi.so.40"}

# What a file must export, by its name. NVIDIA's driver is to call the program's mmap, by which every worker has its
# memory at the same addresses; without that nothing fails but moves of sessions.
EXPORTS = {"causeway": {"mmap", "mmap64"}}

# What a library says that it is called, where that is not its file's name. A program that opens `libcublas.so` is given the
# stand-in that it has loaded already, as the loader compares these names.
SONAMES = {"libcauseway_cublas.so": "libcublas.so"}

# How the functions and the data begin that come from there, none of which has a version.
WITHOUT_VERSIONS = ("MPI_", "PMPI_", "OMPI_", "ompi_", "causeway_")

VERSION = re.compile(r"Name: (GLIBC_[0-9.]+)\s")
NEEDED = re.compile(r"\(NEEDED\)\s+Shared library: \[(.+)\]")
SONAME = re.compile(r"\(SONAME\)\s+Library soname: \[(.+)\]")
# An undefined symbol that has to be found, without the version that each symbol of glibc's has.
WITHOUT_VERSION = re.compile(r"\sGLOBAL\s+\S+\s+UND\s+([^\s@]+)$", re.MULTILINE)
# A function that others are to find.
EXPORTED = re.compile(r"\sFUNC\s+GLOBAL\s+\S+\s+\d+\s+([^\s@]+)", re.MULTILINE)
SECTION = re.compile(r"^\s*\[ *\d+\] (\.\S+)", re.MULTILINE)


@dataclass(frozen=True)
class Needs:
    """What an ELF file needs, and what is in it."""

    glibc: tuple[int, ...]
    libraries: frozenset[str]
    soname: str = ""
    sections: frozenset[str] = field(default_factory=frozenset)
    without_version: frozenset[str] = field(default_factory=frozenset)
    exported: frozenset[str] = field(default_factory=frozenset)


def number(version: str) -> tuple[int, ...]:
    """`GLIBC_2.28` or `2.28` as numbers, which compare as versions do."""
    return tuple(int(part) for part in version.removeprefix("GLIBC_").split("."))


def parse(text: str) -> Needs:
    """What `readelf --wide --dynamic --dyn-syms --version-info --section-headers` prints of a file."""
    versions = [number(version) for version in VERSION.findall(text)]
    soname = SONAME.search(text)
    return Needs(
        max(versions, default=(0,)),
        frozenset(NEEDED.findall(text)),
        soname[1] if soname else "",
        frozenset(SECTION.findall(text)),
        frozenset(WITHOUT_VERSION.findall(text)),
        frozenset(EXPORTED.findall(text)),
    )


def needs(file: Path) -> Needs:
    """What a file needs."""
    command = ["readelf", "--wide", "--dynamic", "--dyn-syms", "--version-info", "--section-headers", str(file)]
    return parse(
        subprocess.run(command, check=True, capture_output=True, text=True, env={"LC_ALL": "C"}).stdout
    )


def misbuilt(name: str, found: Needs) -> list[str]:
    """What is wrong with a file however it was built: it hides what others look for, or has another library's name."""
    sentences = []
    if hidden := EXPORTS.get(name, set()) - found.exported:
        sentences.append(
            f"{name} does not export {', '.join(sorted(hidden))}, without which NVIDIA's driver gives each worker other addresses"
            " and sessions cannot move: see crates/cli/src/mmap.rs"
        )
    if ".so" in name and found.soname not in ("", name, SONAMES.get(name)):
        sentences.append(f"{name} says that it is called {found.soname}")
    return sentences


def wrong(name: str, found: Needs, most_glibc: str) -> list[str]:
    """What keeps a file from running on a machine with that glibc, or should not be handed out."""
    sentences = misbuilt(name, found)
    if found.glibc > number(most_glibc):
        is_needed = ".".join(map(str, found.glibc))
        sentences.append(f"{name} needs glibc {is_needed}, and may need {most_glibc} at most")
    if lost := {symbol for symbol in found.without_version if not symbol.startswith(WITHOUT_VERSIONS)}:
        # The linker takes a library that has them for granted: that of the build is too old, or there is none.
        names = ", ".join(sorted(lost))
        sentences.append(f"{name} needs {names}, which no library that it names had when it was linked")
    if others := found.libraries - OF_GLIBC - OF_OTHERS:
        sentences.append(f"{name} needs {', '.join(sorted(others))}, which not every system has")
    if left := found.sections & {".symtab", ".debug_info", ".debug_line"}:
        sentences.append(f"{name} is not stripped: it has {', '.join(sorted(left))}")
    return sentences
