"""The wheel `causeway-gpu`: which files it has, and how they become one.

The format is that of https://packaging.python.org/en/latest/specifications/binary-distribution-format. Time
stamps and the order of files are fixed, so that the same files always give the same wheel."""

import base64
import hashlib
import subprocess
import tempfile
import zipfile
from pathlib import Path

from layout import DEVICE_FILES, LIBRARIES, LINKS, SOFTWARE, STUBS, objects, parts

NAME = "causeway_gpu"
# Of one build of glibc's, for any Python: nothing in it is an extension of Python's.
PORTABLE = "py3-none-manylinux_2_28_x86_64"
# The first moment that a zip file can name.
EPOCH = (1980, 1, 1, 0, 0, 0)

METADATA = """\
Metadata-Version: 2.1
Name: causeway-gpu
Version: {version}
Summary: Run CUDA programs on GPUs that are elsewhere
Home-page: {home}
License: Apache-2.0
Classifier: Environment :: GPU :: NVIDIA CUDA
Classifier: License :: OSI Approved :: Apache Software License
Classifier: Operating System :: POSIX :: Linux
Classifier: Programming Language :: Python :: 3
Requires-Python: >=3.9
Description-Content-Type: text/markdown
License-File: LICENSE
License-File: THIRD-PARTY-NOTICES.md

{description}"""


def contents(tree: Path, package: Path, root: Path, version: str, tag: str) -> dict[str, tuple[bytes, bool]]:
    """The files of the wheel but for the record of them: content, and whether it can be executed."""
    objects(tree)
    files: dict[str, tuple[bytes, bool]] = {}
    # The package, and the plugin for pytest beside it.
    for source in sorted(package.rglob("*")):
        if source.suffix in (".py", ".typed"):
            files[str(source.relative_to(package))] = (source.read_bytes(), False)
    # Python looks for these two beside the packages, not in them.
    for beside in ("causeway_gpu.pth", "causeway_gpu.start"):
        files[beside] = ((package / beside).read_bytes(), False)
    # Modules for messages and kernels that communicate, by their own names.
    for module in sorted((root / "mpi/python").glob("*.py")):
        files[module.name] = (module.read_bytes(), False)
    files[f"{NAME}/bin/causeway"] = ((tree / "bin/causeway").read_bytes(), True)
    libraries = f"{NAME}/lib/causeway"
    for name in LIBRARIES:
        if name != STUBS:
            files[f"{libraries}/{name}"] = ((tree / "lib/causeway" / name).read_bytes(), True)
    # The interposers, and what modules give kernels to link. The program of `bench device` is for those who write some.
    for name in parts(tree):
        if name != f"device/{DEVICE_FILES[0]}":
            is_program = not name.startswith("device/")
            files[f"{libraries}/{name}"] = ((tree / "lib/causeway" / name).read_bytes(), is_program)
    for name, target in LINKS.items():
        if "/" in name and not name.startswith(SOFTWARE):
            continue
        # There are no links in wheels. Two copies of the driver would be two drivers in one process, so
        # that its second name is a library which holds nothing and needs the first. Of the stubs a process
        # may have several.
        if target == STUBS:
            content = (tree / "lib/causeway" / target).read_bytes()
        elif name.startswith(SOFTWARE):
            content = second_name(name.removeprefix(SOFTWARE), Path(target).name, "$ORIGIN/..")
        else:
            content = second_name(name, target)
        files[f"{libraries}/{name}"] = (content, True)
    info = f"{NAME}-{version}.dist-info"
    home = "https://github.com/causeway-gpu/causeway"
    description = (package / "README.md").read_text(encoding="utf-8")
    files[f"{info}/METADATA"] = (
        METADATA.format(version=version, home=home, description=description).encode(),
        False,
    )
    files[f"{info}/WHEEL"] = (
        f"Wheel-Version: 1.0\nGenerator: causeway\nRoot-Is-Purelib: false\nTag: {tag}\n".encode(),
        False,
    )
    files[f"{info}/entry_points.txt"] = (
        f"[console_scripts]\ncauseway = {NAME}.program:main\n\n[pytest11]\ncauseway = {NAME}_pytest\n".encode(),
        False,
    )
    for licence in ("LICENSE", "THIRD-PARTY-NOTICES.md"):
        files[f"{info}/licenses/{licence}"] = ((root / licence).read_bytes(), False)
    return files


def second_name(name: str, target: str, folder_of_target: str = "$ORIGIN") -> bytes:
    """A library called `name` that holds nothing and needs the library `target`, of its own folder or another one."""
    with tempfile.TemporaryDirectory() as folder:
        needed = Path(folder, target)
        link(["-Wl,-soname," + target, "-o", str(needed)])
        made = Path(folder, name)
        link(
            ["-Wl,-soname," + name, "-Wl,--no-as-needed", f"-Wl,-rpath,{folder_of_target}", "-o", str(made), str(needed)]
        )
        return made.read_bytes()


def link(arguments: list[str]) -> None:
    """Links a library of nothing but what the arguments say, the same wherever that is done."""
    command = [
        "cc",
        "-shared",
        "-nostdlib",
        "-s",
        "-Wl,--build-id=none",
        "-x",
        "c",
        "/dev/null",
        "-x",
        "none",
        *arguments,
    ]
    subprocess.run(command, check=True)


def record(files: dict[str, tuple[bytes, bool]], info: str) -> bytes:
    """The list of all files with their digests, as installers check it."""
    lines = []
    for name, (content, _) in sorted(files.items()):
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        lines.append(f"{name},sha256={digest},{len(content)}\n")
    return ("".join(lines) + f"{info}/RECORD,,\n").encode()


def write(files: dict[str, tuple[bytes, bool]], version: str, tag: str, out: Path) -> Path:
    """Writes the wheel into a folder; where it is."""
    out.mkdir(parents=True, exist_ok=True)
    info = f"{NAME}-{version}.dist-info"
    path = out / f"{NAME}-{version}-{tag}.whl"
    named = {**files, f"{info}/RECORD": (record(files, info), False)}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as wheel:
        # What describes the wheel comes last, so that it is read without the rest.
        for name in sorted(named, key=lambda name: (name.startswith(info), name)):
            content, is_executed = named[name]
            entry = zipfile.ZipInfo(name, EPOCH)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.create_system = 3
            entry.external_attr = (0o100755 if is_executed else 0o100644) << 16
            wheel.writestr(entry, content)
    return path
