"""Clients that generators make from the OpenAPI document work end to end: in Python, and in TypeScript."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import httpx2
import pytest

from service_processes import started
from services import TOKENS, service_folder

pytestmark = [pytest.mark.slow, pytest.mark.server]

CLIENTS = Path(__file__).with_name("clients")


def run(*command, cwd):
    """What a command prints; the programs beside it are found, too."""
    path = os.pathsep.join([str(Path(command[0]).parent), os.environ["PATH"]])
    done = subprocess.run(
        list(map(str, command)), cwd=cwd, capture_output=True, text=True, timeout=600, env={**os.environ, "PATH": path}
    )
    assert done.returncode == 0, f"{command}: {done.stdout[-3000:]} {done.stderr[-3000:]}"
    return done.stdout


def installed(*command, cwd):
    """Install from a registry; where it cannot be reached the test is skipped, but not in continuous integration."""
    try:
        run(*command, cwd=cwd)
    except (AssertionError, subprocess.TimeoutExpired) as error:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(f"the registry cannot be reached: {str(error)[-300:]}")


@pytest.fixture(scope="module")
def process(tmp_path_factory):
    with started(service_folder(tmp_path_factory.mktemp("service"))) as (one,):
        yield one


@pytest.fixture
def document(process, tmp_path):
    """The document as the service tells it, in a file."""
    path = tmp_path / "openapi.json"
    path.write_text(httpx2.get(f"{process.address}/openapi.json").text, encoding="utf-8")
    return path


def agrees(told, process):
    """Check what a client read: the service's own answer, its quote, and both refusals with their codes."""
    headers = {"authorization": f"Bearer {TOKENS['ann']}"}
    question = {"ask": "count", "by": {"country": ["FR", "ES"]}, "clip": 5, "sigma": 60}
    quoted = httpx2.post(f"{process.address}/v1/quote", json=question, headers=headers).json()
    listed = httpx2.get(f"{process.address}/v1/answers", headers=headers).json()
    assert (told["quoted"], told["status"]) == (quoted["rho"], 201)
    assert told["read"] == told["asked"]
    assert told["total"] == pytest.approx(sum(told["asked"]))
    assert told["refused"][:2] == [422, "question"]
    assert "diagnosis" in told["refused"][2]
    assert told["unknown"] == [401, "token"]
    return [each["key"] for each in listed["answers"]]


def test_a_python_client(process, document, tmp_path):
    """The client of openapi-python-client, made without a warning, quotes, asks, reads and is refused."""
    python = tmp_path / "analyst" / "bin" / "python"
    run(sys.executable, "-m", "venv", tmp_path / "analyst", cwd=tmp_path)
    installed(python, "-m", "pip", "install", "--quiet", "--requirement", CLIENTS / "requirements.txt", cwd=tmp_path)
    made = tmp_path / "almoner_client"
    generate = ("openapi_python_client", "generate", "--path", document, "--meta", "none", "--output-path", made)
    run(python, "-m", *generate, "--fail-on-warning", cwd=tmp_path)
    shutil.copy(CLIENTS / "analyst.py", tmp_path)
    told = run(python, "analyst.py", process.address, TOKENS["ann"], cwd=tmp_path)
    assert "python" in agrees(json.loads(told), process)


@pytest.mark.skipif(shutil.which("npm") is None, reason="npm is not installed: no TypeScript client is made")
def test_a_typescript_client(process, document, tmp_path):
    """The types of openapi-typescript pass the compiler with the client, which refuses a field of another kind."""
    for name in ("package.json", "package-lock.json", "tsconfig.json", "analyst.ts"):
        shutil.copy(CLIENTS / name, tmp_path)
    installed("npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts", cwd=tmp_path)
    run("npx", "--no-install", "openapi-typescript", document, "--output", "api.d.ts", cwd=tmp_path)
    run("npx", "--no-install", "tsc", cwd=tmp_path)
    told = run("node", "made/analyst.js", process.address, TOKENS["ann"], cwd=tmp_path)
    assert "typescript" in agrees(json.loads(told), process)
