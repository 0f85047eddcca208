"""Tests of what is read from documents, and of what is found wrong in it."""

import subprocess
import unittest
from pathlib import Path

from blocks import Command, mentions, read
from check import check, fragments, said_by, targets
from run import SHELL, here, script

PAGE = """# Page

Say `causeway serve --clear` and `make lint`.

```console
$ causeway devices   # a remark
output of it
$ causeway run --on gpu-box \\
      -- ./program
```

```console needs-gpu
$ nvidia-smi
```

```text
make is the first word of this output
```
"""


def help_of(*words: str) -> str | None:
    """What a small causeway says."""
    return {
        (): "Commands:\n  serve\n  key\n",
        ("serve",): "Options:\n  --listen <ADDRESS>\n  -h, --help\n",
        ("key",): "Commands:\n  show\n",
        ("key", "show"): "Options:\n  --key-file <FILE>\n",
    }.get(words)


class Blocks(unittest.TestCase):
    def test_commands_with_their_lines_and_marks(self):
        commands, wrong = read(PAGE)
        self.assertEqual(wrong, [])
        self.assertEqual(
            commands,
            [
                Command(6, "causeway devices   # a remark", ""),
                Command(8, "causeway run --on gpu-box \\\n      -- ./program", ""),
                Command(13, "nvidia-smi", "needs-gpu"),
            ],
        )

    def test_commands_do_not_hide_in_other_blocks(self):
        _, wrong = read("```\ncauseway devices\n```\n```sh\nmake test\n```\n```\nanything\n```\n```text\n$ true\n```\n")
        self.assertEqual([sentence.partition(":")[0] for sentence in wrong], ["2", "5", "11"])

    def test_a_mark_that_nobody_knows_is_wrong(self):
        _, wrong = read("```console needs-luck\n$ true\n```\n")
        self.assertEqual(wrong, ["1: a block of commands cannot be marked `needs-luck`"])

    def test_prose_names_commands(self):
        self.assertEqual([command.text for command in mentions(PAGE)], ["causeway serve --clear"])


class Check(unittest.TestCase):
    def wrong(self, text: str) -> list[str]:
        return check(text, help_of, {"lint", "test"})

    def test_commands_and_options_that_are_there(self):
        for text in (
            "causeway serve --listen 0.0.0.0",
            "A=1 causeway key show --key-file f | sort",
            "sudo /usr/bin/causeway serve -h",
            "causeway serve -- program --any-option",
            "journalctl -u causeway -n 20",
            "docker run -v /opt/causeway:/x --volume y:/root/causeway debian --rm",
            "make test lint JOBS=2   # not made",
        ):
            self.assertEqual(self.wrong(text), [], text)

    def test_what_is_not_there(self):
        self.assertEqual(self.wrong("causeway srve"), ["`causeway srve` is no command"])
        self.assertEqual(self.wrong("causeway key shw"), ["`causeway key shw` is no command"])
        self.assertEqual(self.wrong("causeway serve --liste x"), ["`causeway serve` has no option --liste"])
        self.assertEqual(self.wrong("true && causeway key show -v"), ["`causeway key show` has no option -v"])
        self.assertEqual(self.wrong("make tset"), ["there is no `make tset`"])

    def test_targets_of_make(self):
        self.assertEqual(targets("a-b: c\n\techo d: e\nX := 1\n.PHONY: a-b\n"), {"a-b"})

    def test_messages_and_their_parts(self):
        text = "| text | do |\n| --- | --- |\n| `nothing listens at ...: is `causeway serve` there` | x |\n| prose | y |\n"
        [(line, _, parts)] = fragments(text)
        self.assertEqual((line, parts), (3, ["nothing listens at", "is causeway serve there"]))
        self.assertTrue(said_by("error: nothing listens at ...: is causeway serve there", parts[0]))
        self.assertFalse(said_by("nobody listens at ...", parts[0]))


class Run(unittest.TestCase):
    folder = Path("/tmp/x")

    def test_other_machines_are_this_one(self):
        self.assertEqual(
            here("causeway serve --listen 0.0.0.0", 7, self.folder), "causeway serve --gpu cpu --listen 127.0.0.1:7"
        )
        self.assertEqual(
            here("causeway serve --listen unix:/run/causeway/s", 7, self.folder),
            "causeway serve --gpu cpu --listen unix:/tmp/x/s",
        )
        self.assertEqual(here("causeway run --on gpu-box", 7, self.folder), "causeway run --on 127.0.0.1:7")
        self.assertIn("causeway://", here("causeway key add   # paste it", 7, self.folder))

    def test_a_script_stops_at_the_first_failure_and_names_its_line(self):
        commands = [Command(3, "true", ""), Command(5, "false | cat", ""), Command(7, "echo too far", "")]
        done = subprocess.run(["bash", "-c", script(commands, 1, self.folder)], capture_output=True, text=True)
        self.assertEqual(done.returncode, 99)
        self.assertIn("the command of line 5 ended with status 1", done.stderr)
        self.assertEqual(done.stdout, "")

    def test_what_is_not_to_be_run_is_not_in_the_script(self):
        text = script([Command(1, "rm everything", "needs-root"), Command(2, "causeway serve", "server")], 1, self.folder)
        self.assertNotIn("rm everything", text.removeprefix(SHELL))
        self.assertIn("start_server /tmp/x/server1 'causeway serve --gpu cpu", text)


if __name__ == "__main__":
    unittest.main()
