"""Crates written for the purpose, and what is found in them. `python3 -m unittest discover -s tools/layers` runs it."""

import tempfile
import unittest
from pathlib import Path

from graph import circles
from rules import LayerFile, check_crate, check_workspace
from rust_modules import Crate, leaves, without_comments_and_strings, without_tests


class OfACrate(unittest.TestCase):
    """A folder that holds a crate."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def write(self, **files: str) -> None:
        """Writes files: `a__b` is src/a/b.rs, `layers` the layer file."""
        for name, text in files.items():
            path = "layers.toml" if name == "layers" else f"src/{name.replace('__', '/')}.rs"
            file = self.folder / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")

    def arrows(self, **files: str) -> dict[str, list[str]]:
        """The arrows of a crate, as texts."""
        self.write(**files)
        found = Crate(self.folder / "src").arrows()
        return {str(file): sorted(map(str, targets)) for file, targets in found.items() if targets}


class Reading(OfACrate):
    """Which file names which."""

    def test_use_trees_and_paths_are_followed(self):
        found = self.arrows(
            lib="mod a; mod b; mod c;",
            a__mod="mod inner; pub use inner::{Thing, other as name};",
            a__inner="pub struct Thing; pub fn other() {}",
            b="use crate::{a::{Thing, name as n}, c}; use std::{io, fmt::{self}};",
            c="fn f() { super::b::g(); crate::a::more() }",
        )
        wanted = {
            "a/mod.rs": ["a/inner.rs"],
            "b.rs": ["a/inner.rs", "c.rs"],
            "c.rs": ["a/mod.rs", "b.rs"],
        }
        self.assertEqual(found, wanted)

    def test_what_a_macro_writes_names_files_of_another_crate(self):
        found = self.arrows(
            lib="mod a; mod b; mod c;",
            a="fn f() -> T { let x = quote!(crate::b::x(#y, [0; 2])); quote! { impl A { crate::b::y } }; crate::c::z() }",
            b="",
            c="",
        )
        self.assertEqual(found, {"a.rs": ["c.rs"]})

    def test_comments_strings_and_tests_name_nothing(self):
        found = self.arrows(
            lib="mod a; mod b;",
            a="""// crate::b::x
                 /* crate::b::x */ const S: &str = "crate::b::x \\" crate::b::y"; const R: &str = r#"crate::b::z"#;
                 const C: char = '"'; fn life<'a>(x: &'a str) {}
                 #[cfg(test)] mod tests { use crate::b::x; fn t() { if true { crate::b::x() } } }
                 #[cfg(all(test, not(loom)))] mod more;""",
            b="",
        )
        self.assertEqual(found, {})

    def test_macros_are_looked_up_where_they_are_defined(self):
        found = self.arrows(
            lib="mod a; mod b;",
            a="macro_rules! refuse { () => { $crate::b::say() } }",
            b="fn f() { crate::refuse!() } use crate::refuse;",
        )
        self.assertEqual(found, {"a.rs": ["b.rs"], "b.rs": ["a.rs"]})

    def test_each_glob_counts_and_no_visibility_does(self):
        found = self.arrows(
            lib="mod a;",
            a__mod="mod b; mod c; pub use b::*; pub use c::*;",
            a__b="pub(in crate::a) struct B;",
            a__c="use super::b::B;",
        )
        self.assertEqual(found, {"a/mod.rs": ["a/b.rs", "a/c.rs"], "a/c.rs": ["a/b.rs"]})

    def test_super_leads_out_of_files_and_folders(self):
        found = self.arrows(
            lib="mod a; pub struct Top;",
            a__mod="mod b; mod c; pub struct Here;",
            a__b="use super::Here; use super::super::Top;",
            a__c="use super::b::B;",
        )
        self.assertEqual(found, {"a/b.rs": ["a/mod.rs", "lib.rs"], "a/c.rs": ["a/b.rs"]})

    def test_pieces(self):
        self.assertEqual(leaves("a::{self, b::{c, d as e}, *}"), [
            (("a",), "a"), (("a", "b", "c"), "c"), (("a", "b", "d"), "e"), (("a", "*"), "*"),
        ])
        self.assertEqual(without_comments_and_strings("a 'x' \"y\" // z\nb").split(), ["a", '""', "b"])
        self.assertEqual(without_tests("#[cfg(test)]\nmod t { { } }x"), "x")


class Circles(unittest.TestCase):
    """Strongly connected components."""

    def test_circles_are_found_and_chains_are_not(self):
        arrows = {1: {2}, 2: {3}, 3: {1, 4}, 4: {5}, 5: {4}, 6: {1}}
        self.assertEqual(circles(arrows), [[1, 2, 3], [4, 5]])
        self.assertEqual(circles({1: {2}, 2: {3}, 3: set()}), [])


class Rules(OfACrate):
    """What a layer file forbids."""

    LAYERS = 'layers = ["abi", "submit", "model remote"]\n'

    def check(self, **files: str) -> list[str]:
        """What is wrong with a crate."""
        modules = {"lib": "mod abi; mod submit; mod model; mod remote;", "abi": "", "submit": "", "model": "", "remote": ""}
        self.write(**{"layers": self.LAYERS} | modules | files)
        return check_crate(self.folder)

    def test_down_is_allowed_up_and_aside_are_not(self):
        self.assertEqual(self.check(abi="use crate::model::X; use crate::submit::Y;"), [])
        up = self.check(model="use crate::submit::X;", abi="")
        self.assertEqual(len(up), 1)
        self.assertIn("model.rs -> submit.rs: model may not use submit", up[0])
        aside = self.check(model="use crate::remote::X;")
        self.assertIn("model may not use remote", aside[0])
        root = self.check(model="use crate::X;")
        self.assertIn("defined above all modules", root[0])

    def test_an_exception_is_let_through_until_nobody_needs_it(self):
        layers = self.LAYERS + '[exceptions]\n"model.rs -> submit.rs" = "why"\n'
        self.assertEqual(self.check(layers=layers, model="use crate::submit::X;"), [])
        needless = self.check(layers=layers, model="")
        self.assertIn("needed no more", needless[0])

    def test_circles_inside_a_room_have_a_largest_size(self):
        files = {
            "lib": "mod abi;", "abi": None,
            "abi__mod": "mod a; mod b; mod c;", "abi__a": "use super::b::X;", "abi__b": "use super::c::X;",
            "abi__c": "use super::a::X;",
        }
        del files["abi"]
        self.write(layers='layers = ["abi"]\nlargest_circle = 2\n', **files)
        self.assertIn("a circle of 3 files inside abi", check_crate(self.folder)[0])
        self.write(layers='layers = ["abi"]\nlargest_circle = 3\n')
        self.assertEqual(check_crate(self.folder), [])
        self.write(layers='layers = ["abi/a", "abi/b abi/c", "abi"]\n')
        self.assertTrue(any("circle of 3 files through abi/a, abi/b, abi/c" in one for one in check_crate(self.folder)))

    def test_a_file_in_no_room_and_a_senseless_layer_file_are_named(self):
        self.assertIn("remote.rs is in no module", self.check(layers='layers = ["abi", "submit", "model"]\n')[0])
        for text, said in [("layers = 1", "no list"), ("x = 1\nlayers = []", "unknown key"), ("=", "no TOML"),
                           ('layers = ["a", "a"]', "twice")]:
            self.write(layers=text)
            with self.assertRaisesRegex(ValueError, said):
                LayerFile.read(self.folder / "layers.toml")

    def test_crates_have_layers_too(self):
        for name, dependencies in {"link": "tcp", "tcp": "wire", "wire": "link"}.items():
            (self.folder / name).mkdir()
            text = f'[package]\nname = "x-{name}"\n[dependencies]\nx-{dependencies} = {{ path = "../{dependencies}" }}\n'
            (self.folder / name / "Cargo.toml").write_text(text, encoding="utf-8")
        self.write(layers='layers = ["link", "tcp", "wire"]\n')
        self.assertEqual(len(wrong := check_workspace(self.folder)), 1)
        self.assertIn("x-wire may not use x-link", wrong[0])


if __name__ == "__main__":
    unittest.main()
