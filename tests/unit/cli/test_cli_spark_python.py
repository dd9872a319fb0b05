"""The choice of the Python that runs Spark, and the error text if there is none."""

import fcntl
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import pytest

from penstock.cli.spark_python import find_spark_python, need_spark_python
from penstock.contracts.errors import Invalid

Need = Callable[[Mapping[str, str]], Path]


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """An environment with a Java on the path."""
    java = tmp_path / "java"
    java.touch(mode=0o755)
    return {"PATH": str(tmp_path)}


@pytest.fixture
def need(tmp_path: Path) -> Need:
    """`need_spark_python` for a Python without PySpark, whose environment is the test's folder."""
    return partial(need_spark_python, prefix=str(tmp_path), has_own=lambda: False)


def test_without_java_spark_cannot_run(environ: dict[str, str], need: Need) -> None:
    with pytest.raises(Invalid, match="there is no Java; Spark needs version 17"):
        need({"PATH": "/nowhere"})
    with pytest.raises(Invalid, match="there is no Java in /nowhere;"):
        need(environ | {"JAVA_HOME": "/nowhere"})


def test_without_pyspark_the_error_names_the_installation(environ: dict[str, str], need: Need) -> None:
    with pytest.raises(Invalid, match="make spark-env"):
        need(environ)


def test_during_the_installation_the_error_reports_it(tmp_path: Path, environ: dict[str, str], need: Need) -> None:
    with (tmp_path / "spark-env.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(Invalid, match=r"PySpark is being installed, in \.venv-spark"):
            need(environ)
    with pytest.raises(Invalid, match="make spark-env"):
        need(environ)


def test_the_separate_environment_counts_when_it_is_complete(tmp_path: Path, environ: dict[str, str]) -> None:
    made = tmp_path / ".venv-spark"
    (made / "bin").mkdir(parents=True)
    (made / "bin" / "python").touch(mode=0o755)
    prefix = str(tmp_path / ".venv")
    assert find_spark_python(environ, prefix=prefix, has_own=lambda: False) is None
    (made / ".made").touch()
    assert find_spark_python(environ, prefix=prefix, has_own=lambda: False) == made / "bin" / "python"


def test_a_named_python_has_priority(environ: dict[str, str], need: Need) -> None:
    assert need(environ | {"PENSTOCK_SPARK_PYTHON": sys.executable}) == Path(sys.executable)
    with pytest.raises(Invalid, match="PENSTOCK_SPARK_PYTHON names /nowhere/python, which does not exist"):
        need(environ | {"PENSTOCK_SPARK_PYTHON": "/nowhere/python"})


def test_the_running_python_is_used_if_it_has_pyspark(environ: dict[str, str]) -> None:
    assert need_spark_python(environ, has_own=lambda: True) == Path(sys.executable)
