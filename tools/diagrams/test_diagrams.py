"""What texts of diagrams mean, and what is drawn. `python3 -m unittest discover -s tools/diagrams` runs it."""

import unittest
import xml.etree.ElementTree as ElementTree

from draw import draw, wrapped
from sequence import Divider, Message, Note, parse

TEXT = """
title A launch   # with a remark
lane P program
lane C client|libcuda.so.1
P -> C   cuLaunchKernel
C --> P  returns
C => P   16 MiB
C        checks <grid> & block
P..C     both
== later
"""


class Texts(unittest.TestCase):
    def test_every_form_is_read(self):
        diagram = parse(TEXT)
        self.assertEqual(diagram.title, "A launch")
        self.assertEqual(diagram.lanes, ["program", "client|libcuda.so.1"])
        self.assertEqual(
            diagram.steps,
            [
                Message(0, 1, "call", "cuLaunchKernel"),
                Message(1, 0, "answer", "returns"),
                Message(1, 0, "bulk", "16 MiB"),
                Note(1, 1, "checks <grid> & block"),
                Note(0, 1, "both"),
                Divider("later"),
            ],
        )

    def test_mistakes_name_their_line(self):
        for text, said in [
            ("title T\nlane A a\nA -> B hello", "line 3: there is no lane 'B'"),
            ("title T\nlane A a\n->", "line 3: '->' is no lane"),
            ("lane A a", "needs a title"),
        ]:
            with self.assertRaisesRegex(ValueError, said):
                parse(text)


class Drawings(unittest.TestCase):
    def test_a_drawing_is_svg_with_all_texts(self):
        root = ElementTree.fromstring(draw(parse(TEXT)))
        texts = ["".join(element.itertext()) for element in root.iter("{http://www.w3.org/2000/svg}text")]
        for text in ["A launch", "program", "client", "libcuda.so.1", "cuLaunchKernel", "later"]:
            self.assertIn(text, texts)
        self.assertIn("checks <grid> & block", texts)

    def test_texts_are_wrapped_between_words(self):
        self.assertEqual(wrapped("one two three", 7 * 6.4), ["one two", "three"])
        self.assertEqual(wrapped("incomprehensibilities", 10), ["incomprehensibilities"])
        self.assertEqual(wrapped("a|b", 100), ["a", "b"])


if __name__ == "__main__":
    unittest.main()
