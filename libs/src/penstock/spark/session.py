"""The one Spark session of a process: quiet, on this machine or on a cluster, and gone when the process is."""

import os
import sys
from collections.abc import Mapping
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
