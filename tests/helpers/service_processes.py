"""`almoner serve` in processes of its own, for tests that kill it and for measurements."""

import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager

import httpx2

from almoner.service import opened
from almoner.service.policies import Policy

ERRORS = (httpx2.HTTPError, OSError)


def free_ports(number):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(number)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


class Process:
    """`almoner serve` in a process of its own."""

    def __init__(self, folder, port, holder_port):
        self.command = [sys.executable, "-m", "almoner", "serve", str(folder / "policy.toml")]
        self.command += ["--port", str(port), "--holder-port", str(holder_port)]
        self.address, self.log = f"http://127.0.0.1:{port}", folder / f"{port}.log"
        self.begin()

    get = staticmethod(httpx2.get)

    def begin(self):
        with self.log.open("ab") as log:
            environment = {**os.environ, "OMP_NUM_THREADS": "1"}
            self.running = subprocess.Popen(self.command, stdout=log, stderr=log, env=environment)
        for _ in range(600):
            try:
                if self.get(f"{self.address}/health", timeout=5).status_code == 200:
                    return
            except ERRORS:
                assert self.running.poll() is None, self.log.read_text()
                time.sleep(0.05)
        raise AssertionError(self.log.read_text())

    def kill(self, how=signal.SIGKILL):
        self.running.send_signal(how)
        return self.running.wait(timeout=60)


@contextmanager
def started(folder, number=1):
    opened(Policy.read(folder / "policy.toml"), create=True).close()
    ports = free_ports(2 * number)
    processes = []
    try:
        for place in range(number):
            processes.append(Process(folder, ports[2 * place], ports[2 * place + 1]))  # noqa: PERF401
        yield processes
    finally:
        for each in processes:
            each.running.kill()
            each.running.wait()
