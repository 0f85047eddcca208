"""Tests of the list of third parties."""

import tempfile
import unittest
from pathlib import Path

from notices import Crate, make, shipped


class Notices(unittest.TestCase):
    def metadata(self, folder: Path) -> dict:
        """A program that is linked with `linked`, and needs others to be built and tested."""
        kinds = {"linked": None, "macro": None, "builder": "build", "tester": "dev"}
        packages = [
            {
                "id": name,
                "name": name,
                "version": "1.0.0",
                "license": "MIT",
                "repository": None,
                "homepage": None,
                "manifest_path": str(folder / "Cargo.toml"),
                "targets": [{"kind": ["proc-macro" if name == "macro" else "lib"]}],
            }
            for name in ("program", *kinds, "behind")
        ]
        deps = [{"pkg": name, "dep_kinds": [{"kind": kind}]} for name, kind in kinds.items()]
        nodes = [{"id": "program", "deps": deps}]
        nodes.append({"id": "linked", "deps": [{"pkg": "behind", "dep_kinds": [{"kind": None}, {"kind": "dev"}]}]})
        nodes += [{"id": name, "deps": []} for name in ("macro", "builder", "tester", "behind")]
        return {"packages": packages, "resolve": {"nodes": nodes}, "workspace_members": ["program"]}

    def test_only_what_is_linked_is_named(self):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            (folder / "LICENSE-MIT").write_text("Do as you like.  \r\n")
            (folder / "lib.rs").write_text("no licence")
            crates = shipped(self.metadata(folder), ["program"])
        self.assertEqual([crate.name for crate in crates], ["behind", "linked"])
        self.assertEqual(crates[0].texts, ["Do as you like."])

    def test_a_text_of_several_stands_once(self):
        page = make([Crate("a", "1", "MIT", "h", ["T"]), Crate("b", "2", "MIT", "h", ["T", "T"])])
        self.assertIn("## a 1, b 2\n\n~~~~text\nT\n~~~~\n", page)
        self.assertEqual(page.count("~~~~text"), 1)


if __name__ == "__main__":
    unittest.main()
