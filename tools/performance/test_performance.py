"""Measurements written for the purpose. `python3 -m unittest discover -s tools/performance` runs it."""

import json
import tempfile
import unittest
import xml.etree.ElementTree as ElementTree
from pathlib import Path

from baselines import check, read
from page import make
from plot import Scale, draw, nice_step


def groups(scale="linear", **values):
    """A file with one group of one row."""
    row = {"what": "a <copy>", "values": values, "date": "2026-11-24", "commit": "abc", "source": "a.md", "command": "run"}
    group = {"id": "g", "title": "Copies", "text": "Text.", "unit": "us", "better": "lower", "scale": scale}
    group |= {"machine": "M", "series": {"native": "native", "tcp": "TCP"}, "rows": [row]}
    return json.dumps({"groups": [group]})


class Measurements(unittest.TestCase):
    def test_measurements_of_every_form_are_read(self):
        row = read(groups(native="53.8", tcp="13.6 to 13.8"))[0].rows[0]
        self.assertEqual([measurement.numbers for measurement in row.measurements.values()], [[53.8], [13.6, 13.8]])

    def test_mistakes_are_refused(self):
        for wrong in (groups(other="1"), groups(native="fast"), groups(native="1 2 3"), groups(scale="cubic", tcp="1"), groups(tcp={"value": "1"})):
            with self.assertRaises(ValueError):
                read(wrong)

    def test_measurements_that_the_lab_note_lacks_are_told(self):
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "a.md").write_text("It took 13.6 to 13.8 us, 1,234 times, +5 and 52.70.\n")
            notes = Path(folder)
            self.assertEqual(check(read(groups(native="1234", tcp="13.6 to 13.8")), notes), [])
            self.assertEqual(check(read(groups(tcp="+5")), notes), [])
            for missing in ("3.6", "13", "2.70", "123"):
                self.assertEqual(len(check(read(groups(tcp=missing)), notes)), 1, missing)
            (Path(folder) / "a.md").unlink()
            self.assertRegex(check(read(groups(tcp="1")), notes)[0], "there is no lab note")


class Pages(unittest.TestCase):
    def test_the_page_has_every_measurement_with_its_source(self):
        page = make(read(groups(native="53.8", tcp="13.6 to 13.8")))
        self.assertIn("| a <copy> | 53.8 | 13.6 to 13.8 | 2026-11-24, abc |", page)
        self.assertIn("`docs/lab/a.md`", page)


class Plots(unittest.TestCase):
    def test_a_plot_is_svg_with_all_measurements(self):
        for scale in ("linear", "log"):
            root = ElementTree.fromstring(draw(read(groups(scale, native="2", tcp="13.6 to 13.8"))[0]))
            texts = ["".join(element.itertext()) for element in root.iter("{http://www.w3.org/2000/svg}text")]
            for text in ("a <copy>", "2", "13.6 to 13.8", "TCP", "less is better"):
                self.assertIn(text, texts)
            dots = len(list(root.iter("{http://www.w3.org/2000/svg}circle")))
            self.assertEqual(dots, 2 if scale == "log" else 0)

    def test_axes_hold_all_numbers(self):
        scale = Scale("linear", [-55.4, 187.0])
        self.assertTrue(0 <= scale.place(-55.4) < scale.zero < scale.place(187) <= 1)
        self.assertEqual(Scale("log", [0.12, 75.0]).ticks, [0.1, 1, 10, 100])
        self.assertEqual([nice_step(span) for span in (1, 7, 55, 242)], [0.2, 1, 10, 50])
        with self.assertRaises(ValueError):
            Scale("log", [0.0, 1.0])


if __name__ == "__main__":
    unittest.main()
