"""What passed and failed: as Markdown for people, as JSON with the numbers, and as JUnit XML for a CI
system."""

import json
import re
from dataclasses import dataclass
from xml.etree import ElementTree

# What XML 1.0 has no way to write.
NOT_IN_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass
class Case:
    """One thing that was tried."""

    part: str
    name: str
    seconds: float = 0.0
    failure: str | None = None  # why it failed
    skipped: str | None = None  # why it was not tried


class Report:
    """Markdown for the screen and for gpu-results.md, to which every run appends; numbers for gpu-
    results.json, and what passed and failed for gpu-results.xml."""

    def __init__(self, folder):
        self.folder = folder
        self.file = open(folder / "gpu-results.md", "a")  # noqa: SIM115 - open as long as the report
        self.data = {}
        self.cases = []
        self.part = ""
        self.widths = []

    def begin(self, part, words):
        """Begins a part: what passes and fails from now on is its."""
        self.part = part
        self.line()
        self.line(f"## {' '.join([part, *words])}")
        self.line()

    def passed(self, name, seconds=0.0):
        """Something worked."""
        self.cases.append(Case(self.part, name, seconds))

    def failed(self, name, reason, seconds=0.0):
        """Something did not, and why."""
        self.cases.append(Case(self.part, name, seconds, failure=str(reason)))

    def skipped(self, name, reason):
        """Something was not tried, and why."""
        self.cases.append(Case(self.part, name, skipped=str(reason)))

    def check(self, name, problem, seconds=0.0):
        """Whether something worked: `problem` says why not, and is None where it did."""
        if problem is None:
            self.passed(name, seconds)
        else:
            self.failed(name, problem, seconds)
        return problem is None

    def failures(self):
        """What has failed in this part."""
        return [case for case in self.cases if case.part == self.part and case.failure is not None]

    def counts(self, part=None):
        """How many have passed and failed, of one part or of all."""
        tried = [case for case in self.cases if part in (None, case.part) and case.skipped is None]
        failed = sum(case.failure is not None for case in tried)
        return len(tried) - failed, failed

    def line(self, text=""):
        """A line of Markdown."""
        print(text, flush=True)
        self.file.write(text + "\n")
        self.file.flush()

    def table(self, **columns):
        """Begins a table: its columns with their widths on a screen."""
        self.widths = list(columns.values())
        self.line()
        self.row(*(name.replace("_", " ") for name in columns))
        self.row(*("-" * width for width in self.widths))

    def row(self, *cells):
        """One row, written at once, so that a long run shows how far it is."""
        widths = zip(cells, self.widths, strict=True)
        padded = (str(cell).replace("|", "/").ljust(width) for cell, width in widths)
        self.line("| " + " | ".join(padded) + " |")

    def list_failures(self, mark="FAIL "):
        """A line for each failure of this part."""
        self.line()
        for case in self.failures():
            self.line(f"{mark}{case.name}: {case.failure}")

    def save(self):
        """Writes the numbers, and what passed and failed."""
        (self.folder / "gpu-results.json").write_text(json.dumps(self.data, indent=1) + "\n")
        (self.folder / "gpu-results.xml").write_text(junit(self.cases))


def junit(cases):
    """JUnit XML: a suite for each part, in the order in which they first came."""
    root = ElementTree.Element("testsuites", name="gpu-test")
    for part in dict.fromkeys(case.part for case in cases):
        of_part = [case for case in cases if case.part == part]
        suite = ElementTree.SubElement(
            root,
            "testsuite",
            name=part,
            tests=str(len(of_part)),
            failures=str(sum(case.failure is not None for case in of_part)),
            skipped=str(sum(case.skipped is not None for case in of_part)),
            time=f"{sum(case.seconds for case in of_part):.3f}",
        )
        for case in of_part:
            name, seconds = plain(case.name), f"{case.seconds:.3f}"
            element = ElementTree.SubElement(
                suite, "testcase", classname=f"gpu.{part}", name=name, time=seconds
            )
            for kind, text in (("failure", case.failure), ("skipped", case.skipped)):
                if text is not None:
                    # The first line is what lists show, the text is all of it.
                    text = plain(text)
                    first = text.splitlines()[0] if text else ""
                    ElementTree.SubElement(element, kind, message=first).text = text
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def plain(text):
    """The text without characters that XML cannot hold."""
    return NOT_IN_XML.sub("\ufffd", text)
