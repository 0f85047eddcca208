"""How are MPICH's tests compiled for an MPI, and what is preloaded for them?"""

import os
import shutil
import subprocess
import threading
from pathlib import Path

import suite

TREE = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent

# What the suite's configure finds out on Linux with glibc and gcc.
SETTINGS = """
    HAVE_STDARG_H HAVE_STDINT_H HAVE_STRING_H HAVE_SYS_RESOURCE_H HAVE_SYS_TIME_H HAVE_UNISTD_H HAVE_STDLIB_H
    HAVE_LIMITS_H HAVE_SYS_TYPES_H
    HAVE_GETRUSAGE HAVE_LONG_DOUBLE HAVE_LONG_LONG HAVE_LONG_LONG_INT HAVE__BOOL HAVE_FLOAT__COMPLEX
    HAVE_DOUBLE__COMPLEX HAVE_LONG_DOUBLE__COMPLEX HAVE_PTHREAD_BARRIER_INIT HAVE_PTHREAD_H
    HAVE_MPI_WIN_CREATE HAVE_MPI_TYPE_CREATE_STRUCT HAVE_MPI2_COMBINERS HAVE_MPI_INIT_THREAD
    HAVE_FORTRAN_BINDING HAVE_MTEST_INIT_THREAD_PKG HAVE_MTEST_THREAD_BARRIER
""".split()
VALUES = {
    "THREAD_PACKAGE_NAME": "THREAD_PACKAGE_POSIX",
    "F77_NAME_LOWER_USCORE": 1,
    "MTEST_HAVE_MIN_MPI": 1,
}


class Failed(Exception):
    """What a compiler has said."""


def call(command, folder=None):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=600, cwd=folder)
    if done.returncode:
        raise Failed(done.stderr)


class Builder:
    """Compiles for one MPI into one folder. `mpi` is the ending of its programs, or a folder that scripts/mpis.sh makes."""

    def __init__(self, root, mpi, build, libraries):
        self.root, self.mpi, self.libraries = root, mpi, libraries
        self.is_open = mpi.startswith("openmpi")
        self.folder = build / mpi
        self.include = self.folder / "include"
        # The headers of DTPools look for their settings in the folder above.
        (self.include / "dtpools").mkdir(parents=True, exist_ok=True)
        self.programs, self.locks, self.lock = {}, {}, threading.Lock()

    def program(self, name):
        """One of the MPI's own programs."""
        installed = Path(os.environ.get("CAUSEWAY_CACHE", Path.home() / ".cache/causeway")) / self.mpi / "bin"
        return installed / name if installed.exists() and self.mpi != "mpich" else f"{name}.{self.mpi}"

    def prepare(self):
        """What all tests need. Raises Failed."""
        lines = [f"#define {name} 1" for name in SETTINGS]
        lines += [f"#define {name} {value}" for name, value in VALUES.items()]
        (self.include / "mpitestconf.h").write_text("\n".join(["#pragma once", *lines, ""]))
        for name in ("dtpoolsconf.h", "mtest_mpix.h"):
            (self.include / name).write_text("#pragma once\n")
        for header in self.root.glob("f77/*/*.h.in"):
            folder = self.include / header.parent.relative_to(self.root)
            folder.mkdir(parents=True, exist_ok=True)
            text = header.read_text()
            for name in ("ADDRESS", "OFFSET"):
                text = text.replace(f"@F77_MPI_{name}@", "integer*8")
            (folder / header.stem).write_text(text)
        pools = sorted((self.root / "dtpools/src").glob("*.c"))
        common = [self.root / "util/mtest.c", self.root / "util/mtest_common.c", *pools]
        self.c_objects = [self.compile(source) for source in common]
        self.single = self.compile(self.root / "util/mtest_single.c")
        self.threads = self.compile(self.root / "util/mtest_thread.c", ["-DMTEST_USE_THREAD"])
        self.types = self.compile(self.root / "util/dtypes.c")
        # The same with the start of threads.
        self.threaded = [self.compile(source, ["-DMTEST_USE_THREAD"], "threads") for source in common]
        self.fortran = {}
        if shutil.which(self.program("mpif90")):
            self.fortran = {
                ".f": self.compile(self.root / "util/mtest_f77.f"),
                ".f90": self.compile(self.root / "util/mtest_f08.f90"),
            }
            self.merge()
        self.interposer()

    def merge(self):
        """Tests of files in Fortran are made of a frame and what they differ in."""
        script = self.folder / "testmerge"
        script.write_text((self.root / "maint/testmerge.in").read_text().replace("@PERL@", "perl"))
        for frame in self.root.glob("f*/*/*.tlt"):
            folder = self.made(frame.parent)
            folder.mkdir(parents=True, exist_ok=True)
            call(["perl", script, f"-defn={self.root}/maint/common.defn", frame.with_suffix(".defn"), frame], folder)

    def made(self, folder):
        """Where sources lie that are made for a folder of the suite."""
        return self.folder / "made" / folder.relative_to(self.root)

    def interposer(self):
        """The interposer, and the libraries that are preloaded for tests alone."""
        self.preload = self.folder / "libcauseway_mpi.so"
        link = "yes" if self.is_open else "no"
        call(["make", "--silent", "-C", TREE / "mpi", f"MPICC={self.program('mpicc')}", f"BUILD={self.folder}",
              f"COMM={self.libraries}", f"LINK_MPI={link}"])
        self.mover = self.folder / "on_gpu.so"
        own = [*sorted((HERE / "on_gpu").glob("*.c")), TREE / "mpi/src/collective/layout.c", TREE / "mpi/bench/gpu.c"]
        call([self.program("mpicc"), "-O1", "-g", "-std=gnu11", "-fPIC", "-fvisibility=hidden", "-Wall", "-Wextra",
              "-shared", f"-I{TREE}/mpi/src", f"-I{TREE}/mpi/bench", "-o", self.mover, *own, "-ldl", "-lpthread"])
        # Open MPI lets others have the processor by itself, where ranks are more than processors.
        self.yielding = []
        if not self.is_open:
            self.yielding = [self.folder / "yielding.so"]
            call(["cc", "-O1", "-g", "-std=gnu11", "-fPIC", "-fvisibility=hidden", "-Wall", "-Wextra", "-shared",
                  "-o", *self.yielding, HERE / "yielding.c", "-ldl"])

    def compile(self, source, flags=(), part="objects", shorter=None):
        """An object file. Fortran's modules lie beside it. `shorter` is some text, and what takes its place."""
        made = self.folder / "made"
        path = source.relative_to(made if source.is_relative_to(made) else self.root)
        folder = self.folder / part / path.parent
        folder.mkdir(parents=True, exist_ok=True)
        output = folder / f"{path.name}{''.join(flags)}.o"
        if source.suffix == ".c":
            command = [self.program("mpicc"), "-std=gnu11", "-include", HERE / "removed.h", f"-I{self.include}",
                       f"-I{self.include}/dtpools",
                       f"-I{self.root}/include", f"-I{self.root}/dtpools/include"]
        else:
            command = [self.program("mpif90"), "-fallow-argument-mismatch", f"-I{self.include / path.parent}",
                       f"-I{self.include / path.parent.parent / 'attr'}",
                       f"-I{self.root / path.parent}", f"-I{self.folder / 'objects/util'}", "-J", folder]
        if output.exists() and output.stat().st_mtime > source.stat().st_mtime:
            return output
        if shorter:
            text = source.read_text()
            if shorter[0] not in text:
                raise Failed(f"{source} does not have the words: {shorter[0]}")
            command.append(f"-I{source.parent}")
            source = folder / source.name
            source.write_text(text.replace(*shorter))
        # Some tests were written before C had prototypes.
        call([*command, "-O0", "-g", "-w", *flags, "-c", source, "-o", output])
        return output

    def build(self, test):
        """The path of a test's program. Raises Failed."""
        key = test.folder, test.program
        with self.lock:
            lock = self.locks.setdefault(key, threading.Lock())
        with lock:
            if key not in self.programs:
                self.programs[key] = self.make(test)
            made = self.programs[key]
        if isinstance(made, Failed):
            raise made
        return made

    def make(self, test):
        places = [self.root / test.folder, self.made(self.root / test.folder)]
        program = suite.program_of(places, test.program, suite.read_programs(self.root, test.folder))
        if program is None:
            return Failed("the suite makes its source when it is configured")
        is_threaded = test.folder.startswith("threads")
        output = self.folder / "tests" / test.folder / test.program
        output.parent.mkdir(parents=True, exist_ok=True)
        flags = [*program.flags, *(["-DMTEST_USE_THREAD"] if is_threaded else [])]
        sources = [next((place / name for place in places if (place / name).exists()), places[0] / name)
                   for name in program.sources]
        shorter = suite.SHORTER.get(f"{test.folder}/{test.program}")
        # Modules come before what uses them.
        sources.sort(key=lambda path: ("util" not in path.name and "module" not in path.name, path.name))
        languages = {path.suffix for path in sources}
        if languages != {".c"} and not self.fortran:
            return Failed("the MPI has no Fortran")
        try:
            objects = [self.compile(source, flags, shorter=shorter) for source in sources]
            if languages == {".c"}:
                common = [*self.threaded, self.threads] if is_threaded else [*self.c_objects, self.single]
                linker = self.program("mpicc")
            else:
                common = [self.fortran[".f90" if ".f90" in languages else ".f"]]
                if ".c" in languages:
                    common += [*self.c_objects, self.single]
                linker = self.program("mpif90")
            if "$(LDADDDATA)" in program.libraries:
                common.append(self.types)
            call([linker, "-o", output, *objects, *common, "-lm", "-lpthread"])
        except Failed as failed:
            return failed
        return output
