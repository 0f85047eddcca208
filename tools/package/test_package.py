"""Tests of what is handed out: what files need, trees, the wheel."""

import gzip
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import unittest
import zipfile
from pathlib import Path

import archive
import deb
import elf
import layout
import packages
import rpm
import sbom
import wheel

ROOT = Path(__file__).resolve().parents[2]

READELF = """
Section Headers:
  [Nr] Name              Type            Address          Off    Size   ES Flg Lk Inf Al
  [ 1] .dynsym           DYNSYM          0000000000000238 000238 000060 18   A  2   1  8
  [12] .text             PROGBITS        0000000000001000 001000 000100 00  AX  0   0 16
{sections}
Dynamic section at offset 0x2e00 contains 24 entries:
 0x0000000000000001 (NEEDED)             Shared library: [libc.so.6]
{needed} 0x000000000000000e (SONAME)             Library soname: [libcuda.so.1]
Version needs section '.gnu.version_r' contains 1 entry:
  0x0010:   Name: GLIBC_2.9  Flags: none  Version: 4
  0x0020:   Name: {version}  Flags: none  Version: 3
"""


def needs(version: str = "GLIBC_2.28", needed: str = "", sections: str = "") -> elf.Needs:
    """What would be found in a file."""
    return elf.parse(READELF.format(version=version, needed=needed, sections=sections))


class Elf(unittest.TestCase):
    def test_versions_compare_as_numbers(self):
        self.assertEqual(needs().glibc, (2, 28))
        self.assertEqual(needs("GLIBC_2.2.5").glibc, (2, 9))
        self.assertEqual(elf.wrong("libcuda.so.1", needs(), "2.28"), [])
        [sentence] = elf.wrong("libcuda.so.1", needs("GLIBC_2.29"), "2.28")
        self.assertIn("needs glibc 2.29", sentence)

    def test_what_not_every_system_has_is_told(self):
        needed = " 0x0000000000000001 (NEEDED)             Shared library: [libgcc_s.so.1]\n"
        [sentence] = elf.wrong("libcuda.so.1", needs(needed=needed), "2.28")
        self.assertIn("libgcc_s.so.1", sentence)

    def test_what_debuggers_read_and_a_wrong_name_are_told(self):
        sections = (
            "  [30] .symtab           SYMTAB          0000000000000000 003000 000600 18     31  46  8\n"
        )
        self.assertIn("not stripped", elf.wrong("libcuda.so.1", needs(sections=sections), "2.28")[0])
        self.assertIn("called libcuda.so.1", elf.wrong("libnvidia-ml.so.1", needs(), "2.28")[0])

    def test_a_stand_in_has_the_name_that_programs_open(self):
        built = elf.parse(READELF.format(version="GLIBC_2.28", needed="", sections="").replace("cuda.so.1", "cublas.so"))
        self.assertEqual(elf.misbuilt("libcauseway_cublas.so", built), [])
        self.assertIn("called libcublas.so", elf.misbuilt("libcauseway_comm.so", built)[0])

    def test_symbols_that_glibc_of_the_build_has_not_are_told(self):
        symbols = (
            "    13: 0000000000000000     0 FUNC    GLOBAL DEFAULT  UND gettid\n"
            "    14: 0000000000000000     0 FUNC    GLOBAL DEFAULT  UND memcpy@GLIBC_2.14 (4)\n"
            "    15: 0000000000000000     0 NOTYPE  WEAK   DEFAULT  UND __gmon_start__\n"
            "    16: 0000000000001000    80 FUNC    GLOBAL DEFAULT   12 cuInit\n"
        )
        [sentence] = elf.wrong("libcuda.so.1", needs(sections=symbols), "2.28")
        self.assertIn("needs gettid, which", sentence)

    def test_a_program_that_hides_mmap_is_told(self):
        symbols = (
            "    13: 0000000000001000    80 FUNC    GLOBAL DEFAULT   12 mmap\n"
            "    14: 0000000000001100    80 FUNC    GLOBAL DEFAULT   12 mmap64\n"
        )
        self.assertEqual(elf.wrong("causeway", needs(sections=symbols), "2.28"), [])
        self.assertEqual(elf.wrong("libcuda.so.1", needs(), "2.28"), [])
        imported = symbols.replace("DEFAULT   12 mmap\n", "DEFAULT  UND mmap@GLIBC_2.2.5 (2)\n")
        for hidden in (imported, symbols.replace("GLOBAL DEFAULT   12 mmap\n", "LOCAL  DEFAULT   12 mmap\n")):
            [sentence] = elf.wrong("causeway", needs(sections=hidden), "2.28")
            self.assertIn("does not export mmap, without", sentence)

    def test_a_file_of_this_machine_is_read(self):
        found = elf.needs(Path(sys.executable).resolve())
        self.assertIn("libc.so.6", found.libraries)
        self.assertGreaterEqual(found.glibc, (2, 2, 5))


class Tree(unittest.TestCase):
    """A tree whose files are small, and the wheel that is made of it."""

    def setUp(self):
        self.folder = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)
        self.built = self.folder / "built"
        self.built.mkdir()
        for name in ("causeway", *layout.TOOLS, *layout.LIBRARIES.values()):
            (self.built / name).write_bytes(name.encode() * 100)
        self.tree = self.folder / "tree"
        layout.stage(self.built, self.tree)

    def test_programs_find_each_library_by_its_name(self):
        libraries = self.tree / "lib/causeway"
        self.assertEqual((libraries / "libnvidia-ml.so.1").read_bytes(), b"libcauseway_nvml.so" * 100)
        self.assertEqual((libraries / "libcuda.so").resolve(), (libraries / "libcuda.so.1").resolve())
        self.assertEqual((libraries / "libnvoptix.so.1").read_bytes(), b"libcauseway_stubs.so" * 100)
        self.assertEqual((libraries / "software/libcublas.so.13").read_bytes(), b"libcauseway_cublas.so" * 100)
        self.assertTrue(os.access(self.tree / "bin/causeway", os.X_OK))

    def test_what_is_not_built_is_named(self):
        (self.built / "libcuda.so").unlink()
        with self.assertRaisesRegex(layout.LayoutError, "lacks libcuda.so:"):
            layout.stage(self.built, self.tree)

    def wheel(self, out: str) -> Path:
        files = wheel.contents(self.tree, ROOT / "packaging/python", ROOT, "1.2.3", "py3-none-any")
        return wheel.write(files, "1.2.3", "py3-none-any", self.folder / out)

    def test_the_same_files_give_the_same_wheel(self):
        first = self.wheel("first").read_bytes()
        os.utime(self.tree / "bin/causeway", (1, 1))
        self.assertEqual(self.wheel("second").read_bytes(), first)

    def test_a_wheel_has_the_modules_and_the_interposers(self):
        interposer = self.tree / "lib/causeway/mpi/mpich/libcauseway_mpi.so"
        interposer.parent.mkdir(parents=True)
        interposer.write_text("interposer")
        names = zipfile.ZipFile(self.wheel("out")).namelist()
        self.assertIn("causeway_gpu/lib/causeway/mpi/mpich/libcauseway_mpi.so", names)
        self.assertIn("causeway_gpu/lib/causeway/software/libcublasLt.so.13", names)
        for module in ("comm", "team", "numba", "triton", "verbs"):
            self.assertIn(f"causeway_{module}.py", names)
        self.assertEqual(sum(name.endswith("libcauseway_comm.so") for name in names), 1)

    def test_modules_find_the_library_of_their_wheel_or_archive(self):
        ask = "import causeway_comm as c; print(c.installed('libcauseway_comm.so'), c.installed('device/no_such.bc'))"
        wheel_place, prefix = self.folder / "site", self.folder / "prefix"
        with zipfile.ZipFile(self.wheel("out")) as made:
            made.extractall(wheel_place)
        shutil.copytree(self.tree / "lib", prefix / "lib", symlinks=True)
        shutil.copytree(ROOT / "mpi/python", prefix / "share/causeway/python")
        for modules, library in (
            (wheel_place, wheel_place / "causeway_gpu/lib/causeway/libcauseway_comm.so"),
            (prefix / "share/causeway/python", prefix / "lib/causeway/libcauseway_comm.so"),
        ):
            command = [sys.executable, "-Bc", ask]
            done = subprocess.run(command, cwd=modules, check=True, capture_output=True, text=True)
            self.assertEqual(done.stdout.split(), [str(library), "no_such.bc"])

    def test_a_wheel_is_installed_and_starts_its_program(self):
        (self.tree / "bin/causeway").write_text("#!/bin/sh\necho started with $*\n")
        path = self.wheel("out")
        place = self.folder / "installed"
        with zipfile.ZipFile(path) as made:
            self.assertIsNone(made.testzip())
            made.extractall(place)
        for entry in zipfile.ZipFile(path).infolist():
            (place / entry.filename).chmod(entry.external_attr >> 16)
        start = "import causeway_gpu.program as p; p.main()"
        done = subprocess.run(
            [sys.executable, "-c", start, "a", "b"], cwd=place, capture_output=True, text=True
        )
        self.assertEqual(done.stdout, "started with a b\n", done.stderr)
        self.assertEqual(
            (place / "causeway_gpu.start").read_text().splitlines()[-1], "causeway_gpu.startup:start"
        )


class Packages(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)
        built = self.folder / "built"
        built.mkdir()
        for name in ("causeway", *layout.TOOLS, *layout.LIBRARIES.values()):
            (built / name).write_text(name)
        self.tree = self.folder / "tree"
        layout.stage(built, self.tree)
        others = [f"mpi/{mpi}/{name}" for mpi in layout.MPIS for name in layout.MPI_FILES[:2]]
        for name in (*others, "device/causeway_device.ltoir"):
            file = self.tree / "lib/causeway" / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(name)
        said = self.folder / "said"
        said.mkdir()
        for name in ("causeway-run.1", *packages.COMPLETIONS):
            (said / name).write_text(name)
        self.packages = {one.name: one for one in packages.packages(self.tree, ROOT, said, deb.ZSH, "1.2.3")}

    def test_files_of_packages_do_not_meet(self):
        paths = [path for one in self.packages.values() for path in (*one.files, *one.links)]
        self.assertEqual(len(paths), len(set(paths)))
        for one in self.packages.values():
            self.assertTrue(set(one.needs) <= set(self.packages), one.name)
            self.assertTrue(set(one.settings) <= set(one.files), one.name)

    def test_every_part_of_a_tree_and_every_source_is_in_one_package(self):
        paths = {path for one in self.packages.values() for path in (*one.files, *one.links)}
        parts = {f"/usr/{file.relative_to(self.tree)}" for file in self.tree.rglob("*") if not file.is_dir()}
        self.assertEqual(parts - paths, set())
        headers = {f"/usr/include/causeway/{file.name}" for file in ROOT.glob("device/include/causeway/*")}
        headers |= {f"/usr/include/causeway/nvshmem/{file.name}" for file in ROOT.glob("device/include/nvshmem/*")}
        self.assertEqual({path for path in paths if path.startswith("/usr/include")} - headers,
                         {"/usr/include/causeway/causeway_comm.h"})  # fmt: skip
        self.assertEqual(headers - paths, set())

    def test_no_package_is_made_without_the_interposers(self):
        (self.tree / "lib/causeway/mpi/openmpi-5" / layout.INTERPOSER).unlink()
        with self.assertRaisesRegex(layout.LayoutError, "openmpi-5/libcauseway_mpi.so: make the tree"):
            packages.packages(self.tree, ROOT, self.folder, deb.ZSH, "1.2.3")

    def test_what_programs_are_written_with_has_the_version(self):
        place = self.folder / "place"
        packages.lay_out(self.packages["causeway-dev"], "1.2.3", place)
        about = (place / "usr/share/pkgconfig/causeway.pc").read_text()
        self.assertIn("\nVersion: 1.2.3\n", about)
        version = (place / "usr/share/cmake/causeway/causeway-config-version.cmake").read_text()
        self.assertIn('set(PACKAGE_VERSION "1.2.3")', version)
        code = place / "usr/lib/causeway/device/causeway_device.ltoir"
        self.assertEqual(code.stat().st_mode & 0o777, 0o644)

    def test_an_archive_has_the_sources_and_the_interposers(self):
        path = archive.build(self.tree, ROOT, "1.2.3", self.folder, 0)
        with tarfile.open(path) as made:
            modes = {entry.name.removeprefix("causeway-1.2.3-x86_64/"): entry.mode for entry in made}
        self.assertEqual(modes["include/causeway/team.h"], 0o644)
        self.assertEqual(modes["lib/causeway/comm/libcauseway_comm.so"], 0o777)
        self.assertIn("lib/causeway/mpi/mpich/libcauseway_mpi.so", modes)

    def for_every_program(self, libraries: dict[str, str], *words: str) -> tuple[str, bool]:
        """What the script of `causeway-client-system` says, and whether programs find ours, on a machine where the
        loader finds these libraries."""
        root = self.folder / "machine"
        script = (ROOT / "packaging/client/for-every-program").read_text()
        ours = root / "etc/ld.so.conf.d/000-causeway.conf"
        for path in ("/etc/ld.so.conf.d", "/usr/share/causeway/ld.so.conf", "/usr/lib/wsl"):
            self.assertIn(path, script)
            script = script.replace(path, f"{root}{path}")
        script = script.replace("/usr/lib/x86_64-linux-gnu/nvidia", f"{root}/nvidia")
        (root / "usr/share/causeway").mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / "packaging/client/causeway.conf", root / "usr/share/causeway/ld.so.conf")
        listed = "".join(f"\t{name} (libc6,x86-64) => {path}\n" for name, path in libraries.items())
        (root / "listed").write_text(listed)
        ldconfig = root / "bin/ldconfig"
        ldconfig.parent.mkdir(exist_ok=True)
        ldconfig.write_text(f'#!/bin/sh\n[ "$1" != -p ] || cat {root}/listed\n')
        ldconfig.chmod(0o755)
        environment = os.environ | {"PATH": f"{ldconfig.parent}:{os.environ['PATH']}"}
        command = ["sh", "-c", script, "for-every-program", *words]
        done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
        return done.stderr, ours.exists()

    def test_programs_of_a_machine_with_a_driver_keep_it(self):
        ours = {"libcuda.so.1": "/usr/lib/causeway/libcuda.so.1"}
        self.assertEqual(self.for_every_program({"libc.so.6": "/lib/libc.so.6"}), ("", True))
        self.assertEqual(self.for_every_program(ours), ("", True))
        # A driver comes, and goes.
        said, is_ours = self.for_every_program({"libcuda.so.1": "/usr/lib64/libcuda.so.1"})
        self.assertFalse(is_ours)
        self.assertIn("has NVIDIA's driver (/usr/lib64/libcuda.so.1), which its programs keep", said)
        self.assertEqual(self.for_every_program({}), ("", True))
        self.assertEqual(self.for_every_program(ours, "--not"), ("", False))

    def test_removing_the_service_for_good_leaves_no_secret(self):
        secrets = ["clients.lock", "clients.new-0123456789abcdef", "clients.toml", "key"]
        for scripts, name, stays, last in (
            (deb.SCRIPTS, "postrm", "remove", "purge"),
            (rpm.SCRIPTS, "postun", "1", "0"),
        ):
            root = self.folder / name
            settings, images = root / "etc/causeway", root / "var/cache/causeway/images"
            settings.mkdir(parents=True)
            images.mkdir(parents=True)
            for secret in secrets:
                (settings / secret).write_text("secret")
            (settings / "site.toml").write_text("")
            script = scripts["causeway-server"][name].replace("deb-systemd-helper", "no-such-program")
            for place in ("/etc/", "/var/", "/run/"):
                script = script.replace(place, f"{root}{place}")
            for word, left in ((stays, [*secrets, "site.toml"]), (last, ["site.toml"])):
                # dpkg has the word as the first argument, and so has rpm.
                subprocess.run(["sh", "-ec", script, name, word], check=True)
                self.assertEqual(sorted(file.name for file in settings.iterdir()), left)
                self.assertEqual(images.exists(), word == stays)
            (settings / "site.toml").unlink()
            subprocess.run(["sh", "-ec", script, name, last], check=True)
            self.assertFalse(settings.exists())

    def test_a_package_of_debian_has_what_is_said_of_it(self):
        made = deb.build(self.packages["causeway-server"], "1.2.3", self.folder, 1_000_000_000)
        again = self.folder / "again"
        again.mkdir()
        same = deb.build(self.packages["causeway-server"], "1.2.3", again, 1_000_000_000)
        self.assertEqual(made.read_bytes(), same.read_bytes())

        def ask(*options: str) -> str:
            return subprocess.run(["dpkg-deb", *options], check=True, capture_output=True, text=True).stdout

        self.assertIn("causeway (= 1.2.3)", ask("--field", str(made), "Depends"))
        self.assertIn("./usr/lib/systemd/system/causeway.service", ask("--contents", str(made)))
        place = self.folder / "place"
        ask("--raw-extract", str(made), str(place))
        self.assertEqual((place / "DEBIAN/conffiles").read_text(), "/etc/causeway/serve.toml\n")
        for script in ("postinst", "prerm", "postrm"):
            subprocess.run(["sh", "-n", place / "DEBIAN" / script], check=True)

    def test_the_program_has_its_manual_and_completions(self):
        place = self.folder / "place"
        packages.lay_out(self.packages["causeway"], "1.2.3", place)
        page = gzip.decompress((place / "usr/share/man/man1/causeway-run.1.gz").read_bytes())
        self.assertEqual(page, b"causeway-run.1")
        self.assertEqual((place / "usr/share/zsh/vendor-completions/_causeway").read_text(), "zsh")
        packages.lay_out(self.packages["causeway-client"], "1.2.3", self.folder / "client")
        self.assertEqual(
            (self.folder / "client/usr/lib/causeway/libcuda.so").readlink(), Path("libcuda.so.1")
        )

    def test_what_rpmbuild_is_told_names_every_file_once(self):
        one = self.packages["causeway-server"]
        place = self.folder / "place"
        packages.lay_out(one, "1.2.3", place)
        lines = rpm.spec(one, "1.2.3", place).splitlines()
        self.assertIn("%config(noreplace) /etc/causeway/serve.toml", lines)
        for path in set(one.files) - set(one.settings):
            self.assertEqual(sum(line.endswith(path) for line in lines), 1, path)
        self.assertIn("Requires: glibc >= 2.28, causeway = 1.2.3", lines)


class Bill(unittest.TestCase):
    def test_a_bill_names_what_is_shipped_and_nothing_else(self):
        crates = [("a", "1.0.0", "MIT/Apache-2.0"), ("b", "2.0.0", None), ("tool", "1.0.0", "MIT")]
        found = [{"name": name, "version": version, "license": terms} for name, version, terms in crates]
        made = sbom.bill({"packages": found}, {("a", "1.0.0"), ("b", "2.0.0")}, {"x.deb": "00ff"}, "1.2.3", 0)
        self.assertEqual([one["name"] for one in made["components"]], ["a", "b", "x.deb"])
        self.assertEqual(made["components"][0]["licenses"], [{"expression": "MIT OR Apache-2.0"}])
        self.assertEqual(made["metadata"]["timestamp"], "1970-01-01T00:00:00Z")
        other = sbom.bill({"packages": found}, {("a", "1.0.0")}, {}, "1.2.3", 0)
        self.assertNotEqual(made["serialNumber"], other["serialNumber"])


class SecondNames(unittest.TestCase):
    def test_the_second_name_of_a_library_is_the_same_library_in_a_process(self):
        with tempfile.TemporaryDirectory() as folder:
            source = Path(folder, "first.c")
            source.write_text("static int calls; int count(void) { return ++calls; }")
            named = ["-Wl,-soname,libfirst.so.1", "-o", f"{folder}/libfirst.so.1"]
            subprocess.run(["cc", "-shared", "-fPIC", *named, str(source)], check=True)
            Path(folder, "libfirst.so").write_bytes(wheel.second_name("libfirst.so", "libfirst.so.1"))
            asks = (
                "import ctypes, sys\n"
                "first, second = (ctypes.CDLL(f'{sys.argv[1]}/{name}') for name in sys.argv[2:])\n"
                "print(first.count(), second.count(), ctypes.CDLL('libfirst.so').count())"
            )
            for names in (["libfirst.so", "libfirst.so.1"], ["libfirst.so.1", "libfirst.so"]):
                done = subprocess.run(
                    [sys.executable, "-c", asks, folder, *names], capture_output=True, text=True
                )
                self.assertEqual(done.stdout, "1 2 3\n", done.stderr)


if __name__ == "__main__":
    unittest.main()
