"""The Spark session of a process, on this machine or on a cluster. It logs only errors and ends with the process."""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

JAVA_OPTIONS = "spark.driver.extraJavaOptions"
# For clusters and for this machine. Workers do their own I/O to the store, so nothing large passes the JVM.
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "1g",
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    JAVA_OPTIONS: f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties')}",
}
# The JVM on this machine plans, and waits for workers in Python. Its second compiler and its parallel collector would
# take more CPU time than they save. Measured: without them, Java takes a half to a tenth of it for the first jobs.
LOCAL_JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
LOCAL_SETTINGS = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
PYTHON_VARIABLE = "PYSPARK_PYTHON"  # the Python of workers; a value that is already set has priority
ADDRESS_VARIABLE = "SPARK_LOCAL_IP"
JAVA_VARIABLE = "JAVA_HOME"
JVM_EXIT_S = 10.0  # the time in which a JVM may end before it is killed


def missing_parts() -> str:
    """One sentence why Spark cannot run in this process; empty if it can."""
    if find_spec("pyspark") is None:
        return "Spark is not installed for this Python: pip install 'penstock[spark]'"
    return missing_java(os.environ)


def missing_java(environ: Mapping[str, str]) -> str:
    """One sentence if processes with this environment have no Java; empty if they have."""
    home = environ.get(JAVA_VARIABLE, "")
    if shutil.which("java", path=os.path.join(home, "bin") if home else environ.get("PATH")) is not None:
        return ""
    return f"there is no Java{f' in {home}' if home else ''}; Spark needs version 17 or later"


def open_session(name: str, master: str = "local[*]", settings: Mapping[str, str] | None = None) -> Any:
    """Open a session on a master. `settings` are Spark settings, with priority over those here. Blocks for seconds.

    The JVM reads a pipe of this process. So it always ends with the process.
    """
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(name).master(master)
    chosen = dict(SETTINGS)
    os.environ.setdefault(PYTHON_VARIABLE, sys.executable)
    if master.startswith("local"):
        os.environ.setdefault(ADDRESS_VARIABLE, "127.0.0.1")
        chosen |= LOCAL_SETTINGS
        chosen[JAVA_OPTIONS] += f" {LOCAL_JAVA_OPTIONS}"
    for key, value in (chosen | dict(settings or {})).items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def close_session(session: Any, exit_s: float = JVM_EXIT_S) -> None:
    """End a session in any state, and its JVM; blocks for some seconds at most."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    gateway = SparkContext._gateway
    with suppress(Exception):  # a stop of a dead JVM raises many kinds of errors
        session.stop()
    SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None
    SparkSession._instantiatedSession = None
    if gateway is None:
        return
    with suppress(Exception):  # as above
        gateway.shutdown()
    jvm: subprocess.Popen[bytes] | None = gateway.proc
    if jvm is None:
        return
    with suppress(OSError):
        assert jvm.stdin is not None, "Spark starts its JVM with a pipe to it"
        jvm.stdin.close()
    try:
        jvm.wait(exit_s)
    except subprocess.TimeoutExpired:
        jvm.kill()
        jvm.wait()


def jvm_pid(session: Any) -> int:
    """The process id of the session's JVM, which this process has started."""
    pid: int = session.sparkContext._gateway.proc.pid
    return pid


def heap_bytes(session: Any) -> int:
    """The memory that the heap of the session's JVM takes from the machine."""
    heap = session._jvm.java.lang.management.ManagementFactory.getMemoryMXBean().getHeapMemoryUsage()
    return int(heap.getCommitted())


def is_alive(session: Any) -> bool:
    """Whether the session can still run jobs."""
    try:
        return not session.sparkContext._jsc.sc().isStopped()
    except Exception:  # noqa: BLE001  the bridge to a dead JVM raises many kinds of errors
        return False
