"""A headless Chromium that tests speak to over two pipes, in its own protocol: no port and no further package."""

import base64
import importlib.util
import json
import os
import shutil
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

__all__ = ["Browser", "browser", "chromium"]

# the browser reads commands from file descriptor 3 and writes answers to 4
_START = """
import fcntl, os, sys
given = [fcntl.fcntl(int(each), fcntl.F_DUPFD, 20) for each in sys.argv[1:3]]
os.dup2(given[0], 3), os.dup2(given[1], 4)
os.execvp(sys.argv[3], sys.argv[3:])
"""


def chromium():
    """The path of a Chromium, or None."""
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


class Browser:
    """One tab: it opens files, says what it asked for, measures, prints and takes pictures."""

    def __init__(self, process, commands, answers):
        self.process, self.commands, self.answers = process, commands, answers
        self.number, self.rest, self.events, self.session = 0, b"", [], None
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for part in ("Page", "Network", "Log", "Runtime"):
            self.send(f"{part}.enable")

    def send(self, method, **parameters):
        """Send a command and wait for its answer; what the browser says in between is kept in ``events``."""
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if self.session is not None:
            message["sessionId"] = self.session
        os.write(self.commands, json.dumps(message).encode() + b"\0")
        while (told := self._next()).get("id") != self.number:
            self.events.append(told)
        assert "error" not in told, told
        return told["result"]

    def _next(self):
        while b"\0" not in self.rest:
            more = os.read(self.answers, 1 << 20)
            assert more, "the browser has ended"
            self.rest += more
        message, self.rest = self.rest.split(b"\0", 1)
        return json.loads(message)

    def open(self, path, *, width, height=1000, dark=False):
        """Show a file at a width, and wait until it is loaded."""
        self.go(path.as_uri(), width=width, height=height, dark=dark)

    def go(self, address, *, width, height=1000, dark=False):
        """Show what is at an address at a width, and wait until it is loaded."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.send("Emulation.setEmulatedMedia", media="", features=[scheme])
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.events = []
        self.send("Page.navigate", url=address)
        while not any(each.get("method") == "Page.loadEventFired" for each in self.events):
            self.events.append(self._next())

    @property
    def requested(self):
        """The addresses that the page has asked for."""
        asked = [each["params"] for each in self.events if each.get("method") == "Network.requestWillBeSent"]
        return [each["request"]["url"] for each in asked]

    @property
    def complaints(self):
        """What the browser has written to its console about the page."""
        return [
            each["params"]
            for each in self.events
            if each.get("method") in ("Log.entryAdded", "Runtime.consoleAPICalled")
        ]

    def run(self, expression):
        """The value of an expression of JavaScript, or of what it promises, from outside the page."""
        told = self.send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in told, told
        return told["result"].get("value")

    def violations(self):
        """What axe, a checker of accessibility, finds wrong with the page: rules and elements."""
        folder = importlib.util.find_spec("axe_core_python").submodule_search_locations[0]
        self.run(f"{(Path(folder) / 'axe.min.js').read_text(encoding='utf-8')}; null")
        found = json.loads(self.run("axe.run().then(found => JSON.stringify(found))"))
        assert len(found["passes"]) > 5, "the checker has not run"
        return [(rule["id"], node["html"]) for rule in found["violations"] for node in rule["nodes"]]

    def printed(self):
        """The page on paper: the bytes of a PDF."""
        return base64.b64decode(self.send("Page.printToPDF", preferCSSPageSize=True, printBackground=True)["data"])

    def picture(self):
        """The whole page as a PNG."""
        return base64.b64decode(self.send("Page.captureScreenshot", captureBeyondViewport=True)["data"])

    def named(self, role):
        """The names that a screen reader says of everything with a role."""
        nodes = self.send("Accessibility.getFullAXTree")["nodes"]
        shown = [each for each in nodes if not each["ignored"] and each["role"]["value"] == role]
        return [each.get("name", {}).get("value", "") for each in shown]


@contextmanager
def browser(folder):
    """A browser with its profile in a folder; it is closed at the end."""
    below, commands = os.pipe()
    answers, above = os.pipe()
    options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--remote-debugging-pipe"]
    options += [f"--user-data-dir={folder}", "--no-first-run", "--disable-background-networking"]
    start = [sys.executable, "-c", _START, str(below), str(above), chromium(), *options, "about:blank"]
    process = subprocess.Popen(start, pass_fds=(below, above), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    os.close(below), os.close(above)
    try:
        yield Browser(process, commands, answers)
    finally:
        process.kill()
        process.wait()
        os.close(commands), os.close(answers)
