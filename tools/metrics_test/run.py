#!/usr/bin/env python3
"""Has Prometheus execute every query of the dashboard and every alert against a running server.

    tools/metrics_test/run.py CAUSEWAY PROGRAM

CAUSEWAY is the program, PROGRAM a CUDA program that gives the server something to count. The rules' own tests
run in promtool. Where Prometheus is not installed nothing is checked, which is said: `apt-get install prometheus`.
"""

import json
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request
from pathlib import Path

HERE = Path(__file__).resolve().parents[2] / "monitoring"
# What a machine without a GPU has no answer to.
MAY_BE_EMPTY = (
    "causeway_device_utilization_ratio",
    "causeway_device_temperature_celsius",
    "causeway_device_power_watts",
    "causeway_device_energy_joules_total",
)
# Families of which a series exists from the start, whatever happens.
TIMEOUT = 90


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def get(url):
    with urllib.request.urlopen(url, timeout=10) as answer:
        return answer.read().decode()


def until(what, condition):
    end = time.monotonic() + TIMEOUT
    while time.monotonic() < end:
        try:
            if condition():
                return
        except OSError:
            pass
        time.sleep(0.2)
    sys.exit(f"waited {TIMEOUT} s in vain: {what}")


def dashboard_queries():
    dashboard = json.loads((HERE / "grafana-dashboard.json").read_text())
    for panel in dashboard["panels"]:
        for target in panel["targets"]:
            query = target["expr"].replace("$__rate_interval", "1m").replace("$instance", ".*")
            if "$" in query:
                sys.exit(f"{panel['title']}: a variable is left in {query}")
            yield panel["title"], query


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    causeway, program = sys.argv[1:]
    tools = {name: shutil.which(name) for name in ("prometheus", "promtool")}
    missing = [name for name, path in tools.items() if path is None]
    if missing:
        print(f"NOT checked: queries of dashboard and alerts, for {' and '.join(missing)} are not installed")
        return
    for words in (["check", "rules", "causeway.rules.yml"], ["test", "rules", "causeway.rules.test.yml"]):
        subprocess.run([tools["promtool"], *words], cwd=HERE, check=True)
    metrics, web = free_port(), free_port()
    started = []
    with tempfile.TemporaryDirectory() as folder:
        try:
            # The rules as they are, scraped and evaluated every second.
            shutil.copy(HERE / "causeway.rules.yml", folder)
            settings = (HERE / "prometheus.yml").read_text().replace("15s", "1s")
            (Path(folder) / "prometheus.yml").write_text(settings.replace("127.0.0.1:9469", f"127.0.0.1:{metrics}"))
            serve = [causeway, "serve", "--gpu", "cpu", "--no-cache", "--insecure-no-key", "--listen", "127.0.0.1:0"]
            server = subprocess.Popen([*serve, "--metrics", f"127.0.0.1:{metrics}"], stdout=subprocess.PIPE, text=True)
            started.append(server)
            on = server.stdout.readline().strip()
            page = get(f"http://127.0.0.1:{metrics}/metrics")
            checked = subprocess.run([tools["promtool"], "check", "metrics"], input=page, text=True, capture_output=True)
            if checked.returncode or checked.stderr or checked.stdout:
                sys.exit(f"promtool check metrics:\n{checked.stdout}{checked.stderr}")
            watching = [tools["prometheus"], "--config.file=prometheus.yml", f"--storage.tsdb.path={folder}/data"]
            watching.append(f"--web.listen-address=127.0.0.1:{web}")
            with open(Path(folder) / "log", "w") as log:
                started.append(subprocess.Popen(watching, cwd=folder, stdout=log, stderr=log))
            api = f"http://127.0.0.1:{web}/api/v1/query?query="

            def ask(query):
                answer = json.loads(get(api + urllib.parse.quote(query)))
                if answer["status"] != "success":
                    sys.exit(f"{query}: {answer}")
                return answer["data"]["result"]

            until("Prometheus scrapes the server", lambda: [s for s in ask('up{job="causeway"}') if s["value"][1] == "1"])
            # Again and again, so that there are rates.
            def busy():
                subprocess.run([causeway, "run", "--on", on, "--", program], check=True, stdout=subprocess.DEVNULL)
                launched = ask("sum(rate(causeway_launches_total[1m]))")
                return launched and float(launched[0]["value"][1]) > 0
            until("the launches of a program are counted", busy)
            queries = list(dashboard_queries())
            for title, query in queries:
                if not ask(query) and not any(name in query for name in MAY_BE_EMPTY):
                    sys.exit(f"{title}: nothing is found by {query}")
            rules = (HERE / "causeway.rules.yml").read_text()
            alerts = re.findall(r"expr: (.*)", rules)
            for query in alerts:
                ask(query)
                # Without the comparison there is a value, or the alert would never be raised.
                value = re.split(r" [=><]+ [0-9.]+$", query)[0]
                if not ask(value):
                    sys.exit(f"an alert looks at nothing: {value}")
            # Every family that a query names is one that the server tells, and the other way round.
            told = set(re.findall(r"^# TYPE (\S+)", page, re.M))
            named = set(re.findall(r"causeway_[a-z_]+", " ".join(query for _, query in queries) + rules))
            named = {re.sub(r"_(bucket|sum|count)$", "", name) for name in named}
            unused = told - named - {"causeway_devices", "causeway_device_info"}
            if named - told or unused:
                sys.exit(f"not told: {sorted(named - told)}; on no panel: {sorted(unused)}")
            print(f"{len(queries)} queries of the dashboard and {len(alerts)} alerts were executed")
        finally:
            for process in started:
                process.terminate()
            for process in started:
                process.wait(timeout=30)


if __name__ == "__main__":
    main()
