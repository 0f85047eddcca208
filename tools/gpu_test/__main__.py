"""`python3 tools/gpu_test`, and what `gpu-test.sh` of the bundle starts: see `cli`."""

import pathlib
import sys

# `python3 FOLDER` puts the folder itself on the path, and not the one that the package lies in.
sys.path[0] = str(pathlib.Path(__file__).resolve().parents[1])

from gpu_test.cli import main  # noqa: E402

sys.exit(main())
