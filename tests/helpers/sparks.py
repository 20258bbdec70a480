"""Spark for tests and benchmarks: sessions on loopback, and standalone clusters. Nothing is left running."""

import ctypes
import os
import shutil
import signal
import socket
import subprocess
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from almoner import filters
from almoner.queries import Session
from terms import grouped


def java():
    """Whether there is a Java to run Spark on."""
    home = os.environ.get("JAVA_HOME")
    return bool((home and (Path(home) / "bin" / "java").exists()) or shutil.which("java"))


needs_spark = pytest.mark.skipif(not java(), reason="there is no Java, which Spark runs on")
NO_CODE = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
"""Small questions take as long as Spark's compiler does: most tests do without."""


def started(folder, master="local[2]", **options):
    """A session of Spark that listens on loopback only."""
    from pyspark.sql import SparkSession

    settings = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(Path(folder) / "warehouse"),
        "spark.local.dir": str(Path(folder) / "local"),
        **options,
    }
    builder = SparkSession.builder.master(master).appName("almoner")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return spark


def dies_with_its_parent(core=None):
    """Called in a new process: whatever happens to the tests, it does not go on for ever; nor on other cores."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    if core is not None:
        os.sched_setaffinity(0, {core})


@contextmanager
def cluster(folder, workers, *, pinned=False):
    """A master and workers of one core each, which they cannot leave if pinned; gives the master's address."""
    import pyspark

    command = Path(pyspark.__file__).parent / "bin" / "spark-class"
    environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_DAEMON_MEMORY": "256m"}
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    running = []

    def run(name, *arguments, core=None):
        log = (Path(folder) / f"{name.rpartition('.')[2]}{len(running)}.log").open("wb")
        with log:
            process = subprocess.Popen(
                [command, name, "--host", "127.0.0.1", "--webui-port", "0", *arguments],
                env=environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=lambda: dies_with_its_parent(core),
            )
        running.append(process)

    try:
        run("org.apache.spark.deploy.master.Master", "--port", str(port))
        wait_for(port)
        for number in range(workers):
            place = ("--cores", "1", "--memory", "1536m", "-d", str(Path(folder) / f"worker{number}"))
            core = number % os.cpu_count() if pinned else None
            run("org.apache.spark.deploy.worker.Worker", *place, f"spark://127.0.0.1:{port}", core=core)
        yield f"spark://127.0.0.1:{port}"
    finally:
        for process in reversed(running):
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def wait_for(port, seconds=60):
    """Until something listens."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with socket.socket() as trial:
            if trial.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise TimeoutError(f"nothing listens on port {port}")


def opened(path, data, **options):
    given = {"data": data, "person": "who", "budget": filters.Zcdp(rho=1.0), "ledger": path, "create": True}
    return Session.open(**grouped(given | options))
