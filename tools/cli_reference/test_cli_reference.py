"""Tests of the page about the command line."""

import unittest

from page import commands, make

OVERVIEW = """Run programs elsewhere.

Usage: causeway <COMMAND>

Commands:
  serve  Offer this machine's GPUs
         to clients
  tune-up
  help   Print this message

Options:
  run    is no command here
"""


class Page(unittest.TestCase):
    def test_commands_are_those_of_the_list_alone(self):
        self.assertEqual(commands(OVERVIEW), ["serve", "tune-up"])
        self.assertEqual(commands("Usage: causeway serve\n"), [])

    def test_each_command_has_a_heading_and_its_text(self):
        page = make({(): OVERVIEW, ("key",): "Keys.   \n", ("key", "show"): "Show.\n"})
        self.assertIn("\n## causeway\n\n```text\nRun programs elsewhere.\n", page)
        self.assertIn("\n## causeway key\n\n```text\nKeys.\n```\n", page)
        self.assertIn("\n### causeway key show\n", page)


if __name__ == "__main__":
    unittest.main()
