"""Checks the manifests and the Helm chart of packaging/kubernetes.

    python3 tools/kubernetes CAUSEWAY            checks; CAUSEWAY is the built program
    python3 tools/kubernetes CAUSEWAY --write    writes manifests/*.yaml anew from the chart; needs helm

Every document must be one of Kubernetes' API, and what names something in it must name what is there (`manifests.py`); command
lines must be such that the program takes them, and a server must become ready with those of the manifests (`commands.py`).
Where `helm` is installed the chart is rendered with several values (`chart.py`), and the plain manifests must be what it
makes; it says so where not. Needs the Python packages of tests/kubernetes/requirements.txt. Exit status: 0 if all is well,
1 if not, 2 for wrong use.
"""

import sys
from pathlib import Path

import tomllib
from chart import PLAIN, VALUES, Chart, check_versions, plain
from commands import check_commands, serve
from manifests import check, read

FOLDER = Path("packaging/kubernetes")


def main(arguments: list[str]) -> int:
    """Does what the command line asks for."""
    if len(arguments) not in (1, 2) or arguments[1:] not in ([], ["--write"]):
        print(__doc__, file=sys.stderr)
        return 2
    program = Path(arguments[0]).resolve()
    chart = Chart.find(FOLDER / "chart")
    manifests = {name: FOLDER / "manifests" / name for name in PLAIN}
    if len(arguments) == 2:
        if chart is None:
            print("helm is not installed, and makes the manifests", file=sys.stderr)
            return 1
        for name, path in manifests.items():
            path.write_text(plain(name, chart.render(PLAIN[name])), encoding="utf-8")
    texts = {str(path): path.read_text(encoding="utf-8") for path in [*manifests.values(), *sorted(FOLDER.glob("examples/*"))]}
    version = tomllib.loads(Path("Cargo.toml").read_text(encoding="utf-8"))["workspace"]["package"]["version"]
    wrong = check_versions(texts | {"Chart.yaml": (FOLDER / "chart/Chart.yaml").read_text(encoding="utf-8")}, version)
    if chart is None:
        print("NOT checked: the Helm chart, for helm is not installed")
    else:
        wrong += chart.lint()
        texts |= {f"the chart with {values or 'no values'}": chart.render(values) for values in VALUES}
        for name, path in manifests.items():
            if path.read_text(encoding="utf-8") != plain(name, chart.render(PLAIN[name])):
                wrong.append(f"{path} is not what the chart makes: run python3 tools/kubernetes CAUSEWAY --write")
    for name, text in texts.items():
        documents = read(text)
        found = check(documents) + check_commands(documents, program)
        wrong += [f"{name}: {sentence}" for sentence in found]
    wrong += serve(read(manifests["servers.yaml"].read_text(encoding="utf-8")), program)
    for sentence in wrong:
        print(sentence, file=sys.stderr)
    return 1 if wrong else 0


sys.exit(main(sys.argv[1:]))
