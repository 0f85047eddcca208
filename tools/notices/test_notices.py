"""Tests of the list of third parties."""

import tempfile
import unittest
from pathlib import Path

from notices import Crate, make, shipped, with_texts


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

    def test_a_crate_without_a_text_has_that_of_its_repository(self):
        crates = [Crate("a", "1", "MIT", "h"), Crate("b", "1", "MIT", "h", ["T"]), Crate("c", "1", "Zlib", "h")]
        self.assertEqual([crate.texts for crate in with_texts(crates)], [["T"], ["T"], []])
        apache, either = "Apache-2.0 WITH LLVM-exception", "Apache-2.0 OR MIT"
        crates = [Crate(at, "1", terms, at, [terms] * (at == "x")) for at in "xy" for terms in (apache, either)]
        self.assertEqual([crate.texts for crate in with_texts(crates)], [[apache], [either], [apache], []])

    def test_a_text_of_several_stands_once(self):
        page = make([Crate("a", "1", "MIT", "h", ["T"]), Crate("b", "2", "MIT", "h", ["T", "T"])])
        self.assertIn("## a 1, b 2\n\n~~~~text\nT\n~~~~\n", page)
        self.assertEqual(page.count("~~~~text"), 1)


if __name__ == "__main__":
    unittest.main()
