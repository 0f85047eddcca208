"""The tree as an archive, for machines where nobody is root: unpack it anywhere, such as a cluster's folder
of software."""

import gzip
import io
import tarfile
from pathlib import Path

import layout


def build(tree: Path, root: Path, version: str, out: Path, moment: int) -> Path:
    """Makes the archive; where it is. Names, owners and ages do not depend on who makes it."""
    layout.objects(tree)
    layout.must_have_all(tree)
    top = f"causeway-{version}-x86_64"
    files: dict[str, Path | bytes] = {
        str(file.relative_to(tree)): file for file in tree.rglob("*") if file.is_symlink() or file.is_file()
    }
    # Where a cluster's `module use PREFIX/share/modulefiles` finds it.
    files |= layout.sources(root, version)
    files[f"share/modulefiles/causeway/{version}.lua"] = root / "packaging/lmod/causeway.lua"
    for text in ("LICENSE", "THIRD-PARTY-NOTICES.md"):
        files[text] = root / text
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for name, file in sorted(files.items()):
            if isinstance(file, bytes):
                entry = tarfile.TarInfo(f"{top}/{name}")
                entry.size, entry.mode = len(file), 0o644
            else:
                entry = archive.gettarinfo(file, f"{top}/{name}")
            entry.uid = entry.gid = 0
            entry.uname = entry.gname = "root"
            entry.mtime = moment
            entry.mode = 0o777 if entry.issym() else 0o755 if entry.mode & 0o100 else 0o644
            if entry.issym():
                archive.addfile(entry)
            else:
                archive.addfile(entry, io.BytesIO(file if isinstance(file, bytes) else file.read_bytes()))
    out.mkdir(parents=True, exist_ok=True)
    path = out / f"{top}.tar.gz"
    path.write_bytes(gzip.compress(packed.getvalue(), 9, mtime=moment))
    return path
