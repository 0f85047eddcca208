"""Which tests has MPICH's suite, of what are they made, and how are they run?"""

import re
from dataclasses import dataclass, field

# Folders of test/mpi whose tests send, receive, or ask about messages, types, groups and topologies; then those of what
# programs do beside messages: windows, files, processes, sessions, partitioned messages; then what asks about the MPI.
FOLDERS = """
    pt2pt coll datatype comm topo attr errhan group info init
    threads/pt2pt threads/coll threads/comm threads/init
    errors/pt2pt errors/coll errors/datatype errors/comm errors/group errors/topo errors/attr
    f77/pt2pt f77/coll f77/datatype f77/comm f77/topo f77/attr f77/ext f77/info f77/init
    f08/pt2pt f08/coll f08/datatype f08/subarray f08/comm f08/topo f08/attr f08/ext f08/misc
    rma io spawn session part
    threads/rma threads/spawn threads/part
    errors/rma errors/io errors/spawn
    f77/rma f77/io f77/spawn f08/rma f08/io f08/spawn
    f90/attr f90/datatype f90/ext f90/f90types f90/misc f90/timer f90/spawn
    f08/init f08/info f08/profile f08/timer f77/profile
    errors/f77/io errors/f90/io errors/f08/io mpi_t threads/mpi_t
""".split()
# The suite's words of what a test needs of the machine or of MPICH's own kind: such tests are left out.
OWN_SETTINGS = ("env=", "mpiexecarg=")

# Tests that move a million small messages, or gigabytes: what their sources say, and what is compiled instead.
SHORTER = {
    "pt2pt/sendflood": ("#define LOOP_COUNT  100000", "#define LOOP_COUNT 300"),
    "coll/allredmany": ("i < 10000", "i < 300"),
    "coll/allgatherv4": ("#define LOOPS 10", "#define LOOPS 1"),
    "threads/pt2pt/threads": ("#define LOOPS 1000", "#define LOOPS 10"),
    "threads/pt2pt/alltoall": ("#define NUM_ITER 10000", "#define NUM_ITER 100"),
}

# Messages of 16 MiB, each way and by some threads: the rounds that such tests are told to make, and those that
# they make.
SHORTER_ROUNDS = {("-iter=64", "-count=4194304"): "-iter=8"}


@dataclass
class Test:
    """A program with its arguments, and a number of ranks."""

    folder: str
    program: str
    ranks: int
    arguments: list = field(default_factory=list)
    # Why it is not run, if it is not.
    skipped: str = ""

    @property
    def run_arguments(self):
        shorter = SHORTER_ROUNDS.get(tuple(self.arguments))
        return [shorter, *self.arguments[1:]] if shorter else self.arguments

    @property
    def name(self):
        words = [f"{self.folder}/{self.program}", *self.arguments]
        return f"{' '.join(words)} ({self.ranks})"


@dataclass
class Program:
    """What a program is compiled from."""

    sources: list
    flags: list
    libraries: list


def read_test(folder, line, most_ranks, most_memory):
    """A line of a list, or None where it is no test for any MPI."""
    words = line.split()
    # Marks in front of a name: what needs much memory, and what configure finds out.
    marked = re.match(r"@(\w+)@(.*)", words[0])
    if not words[0].strip("@") or marked and not marked[2]:
        return None
    program = marked[2] if marked else words[0]
    ranks = int(words[1]) if len(words) > 1 and words[1].isdigit() else 2
    options = dict(word.split("=", 1) for word in words[1:] if "=" in word and not word.startswith("arg="))
    test = Test(folder, program, ranks, [word[4:] for word in words if word.startswith("arg=")])
    if ranks > most_ranks:
        test.skipped = f"wants {ranks} ranks"
    elif float(options.get("mem", 0)) > most_memory:
        test.skipped = f"wants {options['mem']} GB"
    elif options.get("resultTest", "TestAllowWarnings") != "TestAllowWarnings":
        test.skipped = "ends its job on purpose"
    return test


def read_tests(root, folder, most_ranks, most_memory):
    """The tests of a folder. The same one with other settings of MPICH is one."""
    found = {}
    for name in ("testlist", "testlist.in"):
        path = root / folder / name
        for line in path.read_text().splitlines() if path.exists() else ():
            line = line.split("#")[0].strip()
            test = read_test(folder, line, most_ranks, most_memory) if line else None
            # A line without a number is a folder.
            if test is not None and not (root / folder / test.program).is_dir():
                found.setdefault(test.name, test)
    return list(found.values())


def read_programs(root, folder):
    """Programs that are not made of one file of their name, by the folder's Makefile.am."""
    path = root / folder / "Makefile.am"
    text = path.read_text().replace("\\\n", " ") if path.exists() else ""
    programs = {}
    for name, what, value in re.findall(r"^(\w+?)_(SOURCES|CPPFLAGS|LDADD)\s*=\s*(.*)$", text, re.M):
        if name in ("AM", "noinst", "EXTRA"):
            continue
        program = programs.setdefault(name, Program([], [], []))
        words = value.split()
        if what == "SOURCES":
            program.sources += [word for word in words if word.endswith((".c", ".f", ".f90"))]
        elif what == "CPPFLAGS":
            program.flags += [word for word in words if word.startswith("-D")]
        else:
            program.libraries += [word for word in words if word in ("$(LDADDDATA)", "-lm")]
    return programs


def program_of(places, name, programs):
    """What this program is made of, or None where its source is in none of the folders."""
    program = programs.get(name, Program([], [], []))
    if not program.sources:
        found = [f"{name}{end}" for end in (".c", ".f", ".f90") for place in places if (place / f"{name}{end}").exists()]
        if not found:
            return None
        program.sources = found[:1]
    return program
