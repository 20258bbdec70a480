"""Photograph pages of the built site and of the demonstration in headless Chromium, as wide as a desk and as a phone.

`make screenshots` builds both and runs this.

The pictures are for looking at before a release; nothing compares them.
"""

import argparse
import functools
import http.server
import shutil
import subprocess
import threading
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = (
    "index.html",
    "start/index.html",
    "tutorials/weekly-counts/index.html",
    "training/index.html",
    "queries/index.html",
    "filters/index.html",
    "theory/index.html",
    "proofs/planned-odometer/index.html",
    "experiments/adult/index.html",
    "reference/almoner.filters/index.html",
)
"""Pages of the site; every page of the demonstration comes beside them."""

WIDTHS = (1280, 420)


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Serves files without a line for each request."""

    def log_message(self, *arguments: object) -> None:
        """Say nothing."""


def photograph(chromium: str, address: str, picture: Path, *, width: int, height: int, dark: bool) -> None:
    """Write one picture of one page."""
    options = ["--headless=new", "--no-sandbox", "--hide-scrollbars", "--disable-gpu", "--virtual-time-budget=3000"]
    options += ["--blink-settings=preferredColorScheme=0"] if dark else []
    size = [f"--window-size={max(width, 500)},{height}", f"--screenshot={picture}"]
    if width < 500:  # Chromium makes no narrower window: the page is shown in a frame of that width
        picture.with_suffix(".html").write_text(f"<body style='margin:0'><iframe src='{address}' width={width} "
            f"height={height} style='border:0'></iframe>", encoding="utf-8")  # fmt: skip
        address = picture.with_suffix(".html").as_uri()
    subprocess.run([chromium, *options, *size, address], check=True, capture_output=True, timeout=120)
    picture.with_suffix(".html").unlink(missing_ok=True)


def serve(folder: Path) -> http.server.ThreadingHTTPServer:
    """A server of the folder's files, for this machine alone."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def main() -> None:
    """Photograph every page at every width."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--site", type=Path, default=ROOT / "site")
    parser.add_argument("--demo", type=Path, default=ROOT / "demo")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "screenshots")
    parser.add_argument("--page", action="append", help="only these pages of the site")
    parser.add_argument("--height", type=int, default=2400)
    parser.add_argument("--dark", action="store_true")
    given = parser.parse_args()
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        parser.error("there is no chromium on the path")
    given.out = given.out.absolute()  # a page is opened by its address, which has no relative path
    given.out.mkdir(parents=True, exist_ok=True)
    shown = [(given.site, page) for page in given.page or PAGES]
    if given.demo.is_dir() and not given.page:
        shown += [(given.demo, path.name) for path in sorted(given.demo.glob("*.html"))]
    for folder, page in shown:
        server = serve(folder)
        address = f"http://127.0.0.1:{server.server_address[1]}/{page.removesuffix('index.html')}"
        for width in WIDTHS:
            name = page.removesuffix("/index.html").removesuffix(".html").replace("/", "-")
            picture = given.out / f"{folder.name}-{name}-{width}{'-dark' if given.dark else ''}.png"
            photograph(chromium, address, picture, width=width, height=given.height, dark=given.dark)
            print(picture)
        server.shutdown()


if __name__ == "__main__":
    main()
