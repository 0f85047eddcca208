"""A Slurm cluster on this machine, for tests: munged, slurmctld and slurmd as root, with everything in one folder."""

import os
import re
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

# What Debian's packages munge, slurmctld, slurmd and slurm-client bring.
PROGRAMS = ("munged", "slurmctld", "slurmd", "srun", "sbatch", "scontrol", "squeue", "scancel")
TIMEOUT = 90

# Nothing outside of the folder is used, and no control group.
CONFIGURATION = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={folder}/munge/socket
StateSaveLocation={folder}/state
SlurmctldPidFile={folder}/slurmctld.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdSpoolDir={folder}/spool.%n
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmdLogFile={folder}/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerType=sched/builtin
SchedulerParameters=sched_interval=1
SlurmdParameters=config_overrides
ReturnToService=2
KillWait=2
MessageTimeout=60
{more}
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={port1} CPUs=8 RealMemory=1000
NodeName=n2 NodeHostname={host} NodeAddr=127.0.0.1 Port={port2} CPUs=8 RealMemory=1000
PartitionName=main Nodes=n[1-2] Default=YES MaxTime=60 State=UP
"""


def missing() -> list[str]:
    """The programs that are not there."""
    return [name for name in PROGRAMS if shutil.which(name, path="/usr/sbin:/usr/bin:/sbin:/bin") is None]


def until(what: str, condition):
    """Waits for something, and returns it; fails after a while."""
    end = time.monotonic() + TIMEOUT
    while time.monotonic() < end:
        if found := condition():
            return found
        time.sleep(0.1)
    raise AssertionError(f"waited {TIMEOUT} s in vain: {what}")


def free_ports(count: int) -> list[int]:
    """Ports of this host without a listener now."""
    listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [listener.getsockname()[1] for listener in listeners]
    for listener in listeners:
        listener.close()
    return ports


class Cluster:
    """Two nodes. `more` is added to slurm.conf."""

    def __init__(self, folder: Path, more: str):
        self.folder = folder
        # What jobs find: nothing that whoever starts the test has set.
        self.environment = {
            "SLURM_CONF": str(folder / "slurm.conf"),
            "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
            "USER": "ada",
            "HOME": str(folder),
            "LANG": "C",
        }
        for name in ("state", "munge", "spool.n1", "spool.n2"):
            (folder / name).mkdir(mode=0o755)
        host = socket.gethostname().partition(".")[0]
        port, port1, port2 = free_ports(3)
        text = CONFIGURATION.format(folder=folder, host=host, port=port, port1=port1, port2=port2, more=more)
        (folder / "slurm.conf").write_text(text)
        # slurmd of 22.05 loads a plugin for control groups whatever slurm.conf says; this one needs nothing mounted.
        (folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")

    def start(self):
        """Starts all of it; returns when both nodes are idle."""
        munge = self.folder / "munge"
        (munge / "key").write_bytes(os.urandom(128))
        (munge / "key").chmod(0o400)
        files = [f"--{name}-file={munge / name}" for name in ("key", "pid", "log", "seed")]
        self.run("munged", "--force", f"--socket={munge / 'socket'}", *files)
        self.start_controller("-c")
        for node in ("n1", "n2"):
            self.run("slurmd", "-N", node)
        until("both nodes are idle", lambda: self.output("sinfo", "-hNo", "%T").split() == ["idle", "idle"])

    def start_controller(self, *options: str):
        """Starts slurmctld; returns when it answers."""
        self.run("slurmctld", *options)
        until("slurmctld answers", lambda: "is UP" in self.output("scontrol", "ping"))

    def stop_controller(self):
        """Ends slurmctld, and nothing else."""
        self.end([self.folder / "slurmctld.pid"])

    def run(self, *command: str, **options) -> subprocess.CompletedProcess:
        """Runs a command of Slurm's; it need not succeed, unless `check` says so."""
        options = {"env": self.environment, "text": True, "capture_output": True, "timeout": TIMEOUT, **options}
        return subprocess.run(command, stdin=subprocess.DEVNULL, check=False, **options)

    def output(self, *command: str) -> str:
        """What it prints."""
        return self.run(*command).stdout.strip()

    def submit(self, *options: str) -> str:
        """Submits a batch job; returns its number."""
        done = self.run("sbatch", "--parsable", "--output=/dev/null", *options)
        assert done.returncode == 0, f"sbatch {options}: {done.stderr}"
        return done.stdout.strip()

    def state(self, job: str) -> str:
        """The state of a job, and why it waits."""
        return self.output("squeue", "-ho", "%T %r", "--states=all", "-j", job)

    def end(self, files: list[Path]):
        """Ends the processes of these files, and waits for them."""
        numbers = [int(file.read_text()) for file in files if file.exists()]
        for number in numbers:
            try:
                os.kill(number, signal.SIGTERM)
            except ProcessLookupError:
                continue
            until(f"process {number} ends", lambda number=number: not Path(f"/proc/{number}/stat").exists())

    def stop(self):
        """Ends all of it, jobs first: their processes outlive slurmd."""
        self.run("scancel", "-u", "root")
        until("all jobs have ended", lambda: not self.output("squeue", "-h"))
        nodes = [self.folder / f"slurmd.{node}.pid" for node in ("n1", "n2")]
        self.end([*nodes, self.folder / "slurmctld.pid", self.folder / "munge/pid"])

    def logs(self) -> str:
        """The last lines of all logs but those that say nothing."""
        lines = []
        for file in sorted(self.folder.glob("*.log")):
            text = file.read_text(errors="replace").splitlines()
            lines += [f"{file.name}: {line}" for line in text[-40:] if re.search("error|causeway|fail|GPU|pool|rolog", line)]
        lines.append(self.output("squeue", "--states=all", "-o", "%i %T %r"))
        return "\n".join(lines)
