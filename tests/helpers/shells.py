"""The commands that a page of the docs shows, run in a shell as a stranger would, with `almoner` on the search path."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

from service_processes import free_ports

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "deploying.md"


def blocks(page=PAGE):
    """The blocks of commands of a page, in their order, each a list of lines."""
    return [each.strip().splitlines() for each in re.findall(r"```sh\n(.*?)```", page.read_text("utf-8"), re.DOTALL)]


class Shell:
    """A folder, and commands that are run in it. A service that a command starts runs on, on ports of its own."""

    def __init__(self, folder, **environment):
        self.folder, (self.port, self.holder_port) = folder, free_ports(2)
        commands = folder / "bin"
        commands.mkdir()
        (commands / "almoner").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m almoner "$@"\n')
        (commands / "almoner").chmod(0o755)
        paths = {"PATH": f"{commands}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT / "src"), "COLUMNS": "200"}
        self.environment = {**os.environ, **paths, "OMP_NUM_THREADS": "1", **environment}
        self.serving = None

    def run(self, line, *, code=0):
        """Run one command as it stands, but for ports; what it prints."""
        line = line.replace("localhost:8080", f"localhost:{self.port}")
        line = line.replace("localhost:8081", f"localhost:{self.holder_port}")
        how = {"cwd": self.folder, "env": self.environment, "text": True}
        if re.match("almoner serve [^-]", line):
            return self.serve(line, how)
        done = subprocess.run(["bash", "-c", line], capture_output=True, timeout=300, check=False, **how)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout if code == 0 else done.stderr

    def serve(self, line, how):
        """Start a service, and wait until it says that it is there."""
        line = f"exec {line} --port {self.port} --holder-port {self.holder_port}"
        log = self.folder / "service.log"
        with log.open("w") as out:
            self.serving = subprocess.Popen(["bash", "-c", line], stdout=out, stderr=out, **how)
        for _ in range(1200):
            if "stop with" in log.read_text():
                return log.read_text()
            assert self.serving.poll() is None, log.read_text()
            time.sleep(0.05)
        raise AssertionError(log.read_text())

    def stop(self, how=signal.SIGTERM):
        """Stop the service as systemd does, or otherwise; its exit code."""
        if self.serving is None:
            return None
        self.serving.send_signal(how)
        code = self.serving.wait(timeout=60)
        self.serving = None
        return code
