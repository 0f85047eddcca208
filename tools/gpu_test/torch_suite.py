"""PyTorch's own tests of torch.distributed with NCCL, which its wheel brings: `torch_suite.py --list | NAME`.

A process of its own for each test, since they leave groups of processes behind. Needs as many GPUs as
WORLD_SIZE says (2), and the package expecttest. Exit status: 0, 1 for a failure, 77 for a test that skips
itself."""

import os
import sys
import tempfile
import unittest

FOLDER = tempfile.mkdtemp(prefix="torch-suite-")
# The module reads these when it is imported, also in the processes that a test starts.
for name, value in {
    "BACKEND": "nccl",
    "WORLD_SIZE": "2",
    "TEMP_DIR": FOLDER,
    "INIT_METHOD": f"file://{FOLDER}/shared_init_file",
}.items():
    os.environ.setdefault(name, value)

import torch  # noqa: E402
from torch.testing._internal.distributed.distributed_test import DistributedTest, TestDistBackend  # noqa: E402

torch.backends.cuda.matmul.allow_tf32 = False
SKIPPED = 77


class TestDistBackendWithSpawn(TestDistBackend, DistributedTest._DistTestBase):
    """All of them; each starts its ranks as processes."""

    def setUp(self):
        super().setUp()
        self._spawn_processes()


def main():
    """Lists the tests' names, or runs one."""
    names = [name for name in dir(TestDistBackendWithSpawn) if name.startswith("test_")]
    if sys.argv[1:] == ["--list"]:
        print("\n".join(names))
        return 0
    if sys.argv[1:2] not in [[name] for name in names]:
        print(
            f"no test is called {' '.join(sys.argv[1:]) or '(none was named)'}; --list says which there are"
        )
        return 2
    test = unittest.TextTestRunner(verbosity=2).run(TestDistBackendWithSpawn(sys.argv[1]))
    return SKIPPED if test.skipped else int(bool(test.failures or test.errors))


if __name__ == "__main__":
    sys.exit(main())
