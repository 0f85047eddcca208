"""Trees written for the purpose. `python3 -m unittest discover -s tools/check_links` runs it."""

import tempfile
import unittest
from pathlib import Path

from check import check
from markdown import anchor, anchors, links


class Reading(unittest.TestCase):
    def test_links_of_every_form_are_found(self):
        text = (
            '[a](b.md) ![p](c.svg "title") <img src="d.png"> <a href="e.md#f">x</a>\n'
            "[ref]: g.md\n{{#include ../h.md:part}}\n"
        )
        self.assertEqual(
            [(link.line, link.target) for link in links(text)],
            [(1, "b.md"), (1, "c.svg"), (1, "d.png"), (1, "e.md#f"), (2, "g.md"), (3, "../h.md:part")],
        )

    def test_code_has_no_links(self):
        self.assertEqual(links("`[a](b.md)`\n```\n[a](b.md)\n```\n~~~text\n[a](b.md)\n```\n[a](b.md)\n~~~\n"), [])

    def test_headings_have_the_names_that_readers_get(self):
        self.assertEqual(anchor("What `causeway run --on` does, and why"), "what-causeway-run---on-does-and-why")
        self.assertEqual(anchor("[A link](x.md)!"), "a-link")
        self.assertEqual(
            anchors('# One\n## One\n```\n# Two\n```\n### Three {#drei}\n<a id="four"></a>\n'),
            {"one", "one-1", "drei", "four"},
        )


class Checking(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)

    def check(self, **written: str) -> list[str]:
        """What is wrong with a tree: `docs__src__a_md` is docs/src/a.md."""
        listed = []
        for name, text in written.items():
            path = Path(name.replace("__", "/").replace("_md", ".md").replace("_rs", ".rs"))
            (self.root / path).parent.mkdir(parents=True, exist_ok=True)
            (self.root / path).write_text(text, encoding="utf-8")
            listed.append(path)
        return check(self.root, listed)

    def test_links_that_lead_somewhere_are_well(self):
        self.assertEqual(
            self.check(a_md="[b](docs/b.md#there) [a](#here) [c](https://example.org/x#y)\n# Here", docs__b_md="# There"),
            [],
        )

    def test_a_missing_file_and_a_missing_heading_are_told(self):
        wrong = self.check(a_md="\n[b](docs/c.md)\n[b](docs/b.md#nowhere)\n[a](#nor-here)", docs__b_md="# There")
        self.assertEqual(len(wrong), 3, wrong)
        self.assertRegex(wrong[0], r"^a\.md:2: links to docs/c\.md, and docs/c\.md does not exist")
        self.assertRegex(wrong[1], r"^a\.md:3: .* has no heading #nowhere")
        self.assertRegex(wrong[2], r"^a\.md:4: .* has no heading #nor-here")

    def test_documents_that_code_names_exist(self):
        wrong = self.check(b_rs="//! docs/a.md and docs/b.md say", docs__a_md="")
        self.assertEqual(wrong, ["b.rs:1: names docs/b.md, which does not exist"])

    def test_places_that_prose_names_exist(self):
        text = "`crates/a.rs`, `crates/a_rs`\n`crates/*/src`, `tests`, `crates/b c`\n```\n`crates/c`\n```\n"
        wrong = self.check(a_md=text, crates__a_rs="", docs__lab__b_md="`crates/gone`")
        self.assertEqual(wrong, ["a.md:1: names crates/a_rs, which does not exist"])

    def test_sources_that_comments_name_exist(self):
        text = "// a/b.rs and b.rs say; gone.rs and c/b.rs do not, of which `*.rs` is no name\nlet x = \"x.rs\";\n"
        wrong = self.check(crates__a__b_rs="", crates__c_rs=text)
        self.assertEqual([line.split()[2].strip(",") for line in wrong], ["gone.rs", "c/b.rs"], wrong)

    def test_rows_of_a_table_have_a_head(self):
        wrong = self.check(a_md="| a |\n|---|\n| 1 |\n| 2 |\n\n| b |\n| 1 |\n| 2 |\n")
        self.assertEqual(wrong, ["a.md:6: the row is in no table, since no `| --- |` is above it"])

    def test_the_book_is_whole_and_by_itself(self):
        wrong = self.check(
            docs__src__SUMMARY_md="[a](a.md)",
            docs__src__a_md="[x](../x.md)\n{{#include ../x.md:part}}\n{{#include ../x.md:other}}",
            docs__src__b_md="",
            docs__x_md="<!-- ANCHOR: part -->",
        )
        self.assertEqual(len(wrong), 3, wrong)
        self.assertIn("not in the book", wrong[0])
        self.assertIn("has no part 'other'", wrong[1])
        self.assertEqual(wrong[2], "docs/src/b.md: is not in docs/src/SUMMARY.md")


if __name__ == "__main__":
    unittest.main()
