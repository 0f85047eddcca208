"""How is a `causeway serve` started, kept alive and ended?"""

import os
import select
import subprocess
import sys
import threading

from gpu_test.commands import kill_group

START_LIMIT_S = 30


class Server:
    """`causeway serve` on a free port of this machine; restarted when it is found dead.

    Both ends prove that they hold this user's key, and over TCP nothing is encrypted: figures over TCP are
    those of the clear."""

    def __init__(self, causeway, gpu, log_path, environment=None, arguments=()):
        self.causeway, self.gpu, self.log_path = causeway, gpu, log_path
        self.environment, self.arguments = environment or {}, arguments
        self.deaths = 0
        self.lock = threading.Lock()  # parts run several programs at a time
        self._start()

    def _start(self):
        command = [str(self.causeway), "serve", "--listen", "127.0.0.1:0", "--clear", "--gpu", self.gpu]
        command += self.arguments
        with open(self.log_path, "a") as log:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
                env=os.environ | self.environment,
            )
        # Its only line of output is its address, written when it listens.
        ready, _, _ = select.select([self.process.stdout], [], [], START_LIMIT_S)
        self.address = self.process.stdout.readline().strip() if ready else ""
        if not self.address:
            status = self.process.poll()
            self.stop()
            ending = "did not listen within 30 s" if status is None else f"ended with status {status}"
            sys.exit(f"the server {ending}; see {self.log_path}")

    def revive(self):
        """Starts the server again if it has died."""
        with self.lock:
            if self.process.poll() is not None:
                self.deaths += 1
                self._start()

    def command(self, command, via="auto"):
        """The command that runs `command` on this server's GPU; `via` names what joins the two."""
        self.revive()
        return [self.causeway, "run", "--on", self.address, "--via", via, "--", *command]

    def stop(self):
        """Ends it, and what it has started."""
        self.process.terminate()
        try:
            self.process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            print("the server did not end within 10 s of SIGTERM", file=sys.stderr)
        kill_group(self.process)
        self.process.wait()
        self.process.stdout.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()
