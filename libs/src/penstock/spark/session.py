"""The one Spark session of a process: quiet, on this machine or on a cluster, and gone when the process is."""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

# On a cluster and on this machine alike. Workers do their own I/O to the store: nothing large passes the JVM.
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "1g",
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties')}",
}
LOCAL_SETTINGS = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
PYTHON_VARIABLE = "PYSPARK_PYTHON"  # the interpreter of workers; what is set already counts more than ours
ADDRESS_VARIABLE = "SPARK_LOCAL_IP"
JAVA_VARIABLE = "JAVA_HOME"
JVM_EXIT_S = 10.0  # how long a JVM may take to end by itself


def missing_parts() -> str:
    """What keeps Spark from running in this process, in one sentence; empty if nothing does."""
    if find_spec("pyspark") is None:
        return "Spark is not installed for this Python: pip install 'penstock[spark]'"
    return missing_java(os.environ)


def missing_java(environ: Mapping[str, str]) -> str:
    """That there is no Java for processes with this environment, in one sentence; empty if there is."""
    home = environ.get(JAVA_VARIABLE, "")
    if shutil.which("java", path=os.path.join(home, "bin") if home else environ.get("PATH")) is not None:
        return ""
    return f"there is no Java{f' in {home}' if home else ''}; Spark needs version 17 or later"


def open_session(name: str, master: str = "local[*]", settings: Mapping[str, str] | None = None) -> Any:
    """A session on a master; `settings` are Spark's own and count more than ours. Takes seconds; blocks.

    Its JVM ends when this process does, however that ends: it reads a pipe of ours.
    """
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(name).master(master)
    chosen = dict(SETTINGS)
    os.environ.setdefault(PYTHON_VARIABLE, sys.executable)
    if master.startswith("local"):
        os.environ.setdefault(ADDRESS_VARIABLE, "127.0.0.1")
        chosen |= LOCAL_SETTINGS
    for key, value in (chosen | dict(settings or {})).items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def close_session(session: Any, exit_s: float = JVM_EXIT_S) -> None:
    """End a session, whatever state it is in, and its JVM with it; blocks, some seconds at most."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    gateway = SparkContext._gateway
    with suppress(Exception):  # a JVM that died cannot even be told to stop, in many ways
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
        assert jvm.stdin is not None, "Spark starts its JVM with a pipe"
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
    except Exception:  # noqa: BLE001  what the bridge to a dead JVM raises is of many kinds
        return False
