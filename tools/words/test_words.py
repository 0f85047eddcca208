"""Tests of the search for words in identifiers, prose and safety comments."""

import subprocess
import tempfile
import unittest
from pathlib import Path

from words import identifiers, prose, read_list, safety, uses_in_tree, write_list

LIST = "# head\nmost\t(^|_)most(_|$)\t^at_most$,^most_recent\t3\n"


def tree(folder: str, files: dict[str, str]) -> Path:
    """A tree of git with `files`."""
    root = Path(folder)
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    subprocess.run(["git", "init", "--quiet"], cwd=root, check=True)
    subprocess.run(["git", "add", "."], cwd=root, check=True)
    return root


class Words(unittest.TestCase):
    def test_identifiers_are_split_and_comments_strings_and_tests_left_out(self) -> None:
        code = 'let most_sessions = MOST + TheMost; // most\nlet at_most = "most";\n#[cfg(test)]\nmod tests { most }\n'
        with tempfile.TemporaryDirectory() as folder:
            root = tree(folder, {"crates/a/src/lib.rs": code, "crates/a/tests/b.rs": "most", "list": LIST})
            found = uses_in_tree(root, read_list(root / "list"), identifiers)
        uses = [use.split(": ")[1] for use in found["most"]]
        self.assertEqual(uses, ["most_sessions", "MOST", "TheMost"])

    def test_prose_leaves_code_blocks_out(self) -> None:
        text = "most\n```\nmost\n```\n"
        with tempfile.TemporaryDirectory() as folder:
            root = tree(folder, {"a.md": text, "list": LIST})
            found = uses_in_tree(root, read_list(root / "list"), prose)
        self.assertEqual(found["most"], ["a.md:1: most"])

    def test_safety_comments_that_name_no_invariant_are_found(self) -> None:
        here = Path(__file__).parent / "safety.tsv"
        vague = ["as above", "valid as promised", "as this function demands; it lives", "the same arguments.", "see `new`."]
        named = ["as many bytes were reserved.", "the caller passes null or room for it.", "the caller's list has `count` entries."]
        code = "".join(f"    // SAFETY: {text}\n" for text in vague + named)
        with tempfile.TemporaryDirectory() as folder:
            found = uses_in_tree(tree(folder, {"crates/a/tests/b.rs": code}), read_list(here), safety)
        uses = [use.split("SAFETY: ")[1] for uses in found.values() for use in uses]
        self.assertEqual(sorted(uses), sorted(vague))

    def test_counts_are_stored_and_the_rest_stays(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "list"
            path.write_text(LIST)
            write_list(path, [word.with_count(2) for word in read_list(path)])
            self.assertEqual(path.read_text(), LIST.replace("\t3\n", "\t2\n"))


if __name__ == "__main__":
    unittest.main()
