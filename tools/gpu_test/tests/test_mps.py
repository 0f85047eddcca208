"""Tests of how MPS is started and ended, with an invented daemon."""

import os
import pathlib
import tempfile
import unittest
from unittest import mock

from gpu_test import mps

# It runs until it is told to quit, as NVIDIA's does.
DAEMON = """#!/bin/sh
if [ "$1" = -f ]; then
    echo $$ >"$CUDA_MPS_LOG_DIRECTORY/started"
    echo $$ >"$NOTES"
    until [ -e "$CUDA_MPS_PIPE_DIRECTORY/quit" ]; do sleep 0.05; done
else
    [ -e "$CUDA_MPS_LOG_DIRECTORY/started" ] || exit 1
    read word
    [ "$word" = quit ] && touch "$CUDA_MPS_PIPE_DIRECTORY/quit"
    exit 0
fi
"""


class Mps(unittest.TestCase):
    def test_without_the_program_there_is_a_reason(self):
        with mps.started("no-such-control") as (environment, why_not):
            self.assertEqual((environment, why_not), ({}, "there is no no-such-control"))

    def test_it_lasts_as_long_as_it_is_used(self):
        with tempfile.TemporaryDirectory() as folder:
            program = pathlib.Path(folder, "control")
            program.write_text(DAEMON)
            program.chmod(0o755)
            notes = pathlib.Path(folder, "notes")
            noted = mock.patch.dict(os.environ, NOTES=str(notes))
            with noted, mps.started(str(program)) as (environment, why_not):
                self.assertIsNone(why_not)
                self.assertTrue(pathlib.Path(environment["CUDA_MPS_PIPE_DIRECTORY"]).is_dir())
                os.kill(int(notes.read_text()), 0)
            with self.assertRaises(ProcessLookupError):
                os.kill(int(notes.read_text()), 0)
            self.assertFalse(pathlib.Path(environment["CUDA_MPS_PIPE_DIRECTORY"]).exists())

    def test_one_that_ends_at_once_is_no_mps(self):
        with mps.started("false") as (environment, why_not):
            self.assertEqual(environment, {})
            self.assertIn("ended with 1", why_not)


if __name__ == "__main__":
    unittest.main()
