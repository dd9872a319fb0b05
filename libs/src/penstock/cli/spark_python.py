"""Finds the Python that has PySpark. PySpark is large, so it may have an environment of its own."""

import fcntl
import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from penstock.contracts.errors import Invalid
from penstock.spark.session import missing_java

PYTHON_VARIABLE = "PENSTOCK_SPARK_PYTHON"
ENVIRONMENT_NAME = ".venv-spark"  # created by `make spark-env`, next to the environment of `make env`
LOCK_NAME = "spark-env.lock"  # in the environment of this Python; `make spark-env` holds it while it works
NOT_INSTALLED = (
    f"PySpark is not installed: run make spark-env in a checkout (450 MB), or pip install 'penstock[spark]', or name a "
    f"Python that has it with {PYTHON_VARIABLE}"
)


def is_installed(package: str) -> bool:
    """Whether the running Python has a package."""
    return importlib.util.find_spec(package) is not None


def has_pyspark() -> bool:
    """Whether the running Python has PySpark."""
    return is_installed("pyspark")


def find_spark_python(
    environ: Mapping[str, str], *, prefix: str = "", has_own: Callable[[], bool] = has_pyspark
) -> Path | None:
    """The Python to run Spark with, or None if there is none (yet).

    `prefix` is the folder of this environment, by default that of the running Python. `has_own` returns whether it has
    PySpark.
    """
    if named := environ.get(PYTHON_VARIABLE):
        return Path(named)
    if has_own():
        return Path(sys.executable)
    made = Path(prefix or sys.prefix).parent / ENVIRONMENT_NAME
    # `make spark-env` writes the stamp last, when the environment is complete.
    return made / "bin" / "python" if (made / ".made").exists() else None


def is_being_made(prefix: str = "") -> bool:
    """Whether `make spark-env` runs now, for example in another terminal."""
    try:
        with (Path(prefix or sys.prefix) / LOCK_NAME).open() as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # it has never run
        return False
    return False


def need_spark_python(
    environ: Mapping[str, str], *, prefix: str = "", has_own: Callable[[], bool] = has_pyspark
) -> Path:
    """The Python to run Spark with; `Invalid` with one sentence if Spark cannot run here (yet).

    See `find_spark_python`.
    """
    if missing := missing_java(environ):
        raise Invalid(missing)
    python = find_spark_python(environ, prefix=prefix, has_own=has_own)
    if python is None and is_being_made(prefix):
        raise Invalid(f"PySpark is being installed, in {ENVIRONMENT_NAME}")
    if python is None:
        raise Invalid(NOT_INSTALLED)
    if not python.is_file():
        raise Invalid(f"{PYTHON_VARIABLE} names {python}, which does not exist")
    return python


def run_with_spark(argv: Sequence[str], *, need_python: Callable[[Mapping[str, str]], Path] = need_spark_python) -> int:
    """Run a `penstock` command with the Python that has PySpark; return the exit code. `Invalid` if there is none."""
    python = need_python(os.environ)
    found = subprocess.run([str(python), "-m", "penstock.cli", *argv], check=False)
    return found.returncode
