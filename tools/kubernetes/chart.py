"""The Helm chart, rendered by helm."""

import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

# For which release of Kubernetes it is rendered.
KUBERNETES = "1.31.0"

# With which values the chart is rendered and checked.
VALUES: tuple[tuple[str, ...], ...] = (
    (),
    ("server.kind=StatefulSet", "server.replicas=3", "server.gpus=2", "devicePlugin.enabled=true", "devicePlugin.perGpu=4"),
    ("server.gpus=none", "server.nodeSelector=null", "server.maxSessions=8", "server.extraArguments={--clear}"),
    ("server.hostPort=7690", "serviceMonitor.enabled=true", "serviceMonitor.labels.release=prometheus"),
    ("server.enabled=false", "devicePlugin.enabled=true", "devicePlugin.servers={gpu-1,gpu-2:7691}", "devicePlugin.giveKeys=false"),
    ("server.kind=StatefulSet", "server.replicas=2", "dra.enabled=true", "dra.shared=true", "dra.nodeLabel=causeway.dev/pool=a"),
    ("server.enabled=false", "dra.enabled=true", "dra.servers={gpu-1}", "dra.giveKeys=false"),
    ("server.gpus=none", "dra.enabled=true", "dra.extendedResource=causeway.dev/gpu"),
    ("networkPolicy.enabled=false", "secret.existing=mine", "images.server.repository=registry.example/causeway-server"),
)

# The plain manifests, and the values of which each is made.
PLAIN: dict[str, tuple[str, ...]] = {
    "servers.yaml": ("secret.existing=causeway-key",),
    "device-plugin.yaml": (
        "secret.existing=causeway-key",
        "server.enabled=false",
        "devicePlugin.enabled=true",
        "devicePlugin.servers={causeway.default.svc}",
    ),
    "dra.yaml": (
        "secret.existing=causeway-key",
        "server.enabled=false",
        "dra.enabled=true",
        "dra.servers={causeway.default.svc}",
    ),
}

# What stands at the beginning of each.
HEADERS = {
    "servers.yaml": "Servers on all nodes with GPUs, in the namespace default",
    "device-plugin.yaml": "The device plugin on all nodes without GPUs, in the namespace default, for the servers of servers.yaml",
    "dra.yaml": "The DRA driver on all nodes without GPUs, in the namespace default, for the servers of servers.yaml",
}


# Where a text names the version.
VERSION = re.compile(r"(?:causeway-(?:client|server):|^appVersion: |^version: )(\d[\w.]*)", re.MULTILINE)


@dataclass(frozen=True)
class Chart:
    """The chart, and the program that renders it."""

    helm: str
    folder: Path

    @staticmethod
    def find(folder: Path) -> "Chart | None":
        """The chart; nothing where there is no helm."""
        helm = shutil.which("helm")
        return Chart(helm, folder) if helm else None

    def lint(self) -> list[str]:
        """What helm has to say against the chart."""
        done = subprocess.run([self.helm, "lint", "--strict", self.folder], capture_output=True, text=True)
        return [] if done.returncode == 0 else [f"helm lint: {done.stdout}{done.stderr}"]

    def render(self, values: tuple[str, ...]) -> str:
        """The documents of the chart, as helm would install them as `causeway` in the namespace default."""
        options = [word for value in values for word in ("--set", value)]
        command = [self.helm, "template", "causeway", str(self.folder), "--namespace", "default", "--kube-version", KUBERNETES, *options]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def check_versions(texts: dict[str, str], version: str) -> list[str]:
    """Which of the texts name another version of Causeway than this, as sentences."""
    named = {name: set(VERSION.findall(text)) - {version} for name, text in texts.items()}
    return [f"{name} names version {other}, and this is {version}" for name, found in named.items() for other in sorted(found)]


def plain(name: str, rendered: str) -> str:
    """A manifest for those who have no helm, from what helm has rendered."""
    of_helm = ("# Source: ", "app.kubernetes.io/managed-by: ")
    lines = [line for line in rendered.splitlines() if not line.lstrip().startswith(of_helm)]
    header = f"# {HEADERS[name]}. Made from the chart by tools/kubernetes.\n"
    return header + "\n".join(lines).removeprefix("---\n") + "\n"
