"""Finds the Python that has Spark, which may be in an environment of its own."""

import shutil
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

from penstock.contracts.errors import Unavailable
from penstock.spark.session import missing_java

PYTHON_VARIABLE = "PENSTOCK_SPARK_PYTHON"
MADE = ".made"  # what `make spark-env` leaves in an environment that is complete


def spark_python(environ: Mapping[str, str], prefix: str, executable: str) -> str:
    """The interpreter for what runs on Spark; `Unavailable` with one sentence if there is none, or no Java.

    It is the one that PENSTOCK_SPARK_PYTHON names, else that of the environment beside this one (`prefix`-spark), else
    our own, `executable`, if that has PySpark.
    """
    if missing := missing_java(environ):
        raise Unavailable(missing)
    named = environ.get(PYTHON_VARIABLE, "")
    if named:
        if shutil.which(named) is None:
            raise Unavailable(f"there is no {named}, which {PYTHON_VARIABLE} names")
        return named
    beside = Path(f"{prefix}-spark")
    if (beside / MADE).exists():
        return str(beside / "bin" / "python")
    if find_spec("pyspark") is not None:
        return executable
    raise Unavailable("Spark is not installed: run `make spark-env`, or pip install 'penstock[spark]'")
