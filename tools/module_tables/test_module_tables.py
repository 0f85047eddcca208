"""Files written for the purpose. `python3 -m unittest discover -s tools/module_tables` runs it."""

import tempfile
import unittest
from pathlib import Path

from tables import HeaderError, first_sentence, renewed


class Tables(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def write(self, name: str, text: str) -> Path:
        """A file of the crate."""
        path = self.folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        return path

    def test_rows_are_the_first_sentences_of_modules(self):
        self.write("b.rs", "//! Bees, of\n//! [`a`] and v1.2. More.\n")
        self.write("a/mod.rs", "//! Ants.\n")
        self.write("c.rs", "//! Cats.\n")
        self.write("tests.rs", "//! Tests.\n")
        declared = "\nmod a;\npub mod b;\n#[cfg(unix)]\nmod c;\n#[cfg(test)]\nmod tests;\n"
        library = self.write("lib.rs", "//! Zoo.\n//!\n//! | Module | Question |\n//! |---|---|\n//! | `b` | ? |\n//! | `gone` | ? |\n" + declared)
        rows = ["| module | contents |", "| --- | --- |", "| `b` | Bees, of `a` and v1.2 |", "| `a` | Ants |", "| `c` | Cats |"]
        expected = "//! Zoo.\n//!\n" + "".join(f"//! {row}\n" for row in rows) + declared
        self.assertEqual(renewed(library)[1], expected)
        library.write_text(expected)
        self.assertEqual(renewed(library), (expected, expected))

    def test_questions_and_missing_headers_are_errors(self):
        for text in ("//! What is\n//! this? A file.\n", "mod a;\n", "//! No end\n"):
            with self.assertRaises(HeaderError, msg=text):
                first_sentence(self.write("a.rs", text))


if __name__ == "__main__":
    unittest.main()
