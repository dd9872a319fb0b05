"""Which Python runs what needs Spark."""

import sys
from pathlib import Path

import pytest

from penstock.cli import interpreters
from penstock.cli.interpreters import spark_python
from penstock.contracts.errors import Unavailable


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """There is a Java on the path."""
    java = tmp_path / "java"
    java.touch(mode=0o755)
    return {"PATH": str(tmp_path)}


@pytest.fixture
def prefix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Where an environment without PySpark is."""
    monkeypatch.setattr(interpreters, "find_spec", lambda _name: None)
    return str(tmp_path / "env")


def test_without_java_nothing_can_run_it(environ: dict[str, str], prefix: str) -> None:
    with pytest.raises(Unavailable, match="there is no Java; Spark needs version 17"):
        spark_python({"PATH": "/nowhere"}, prefix, sys.executable)
    with pytest.raises(Unavailable, match="there is no Java in /nowhere;"):
        spark_python(environ | {"JAVA_HOME": "/nowhere"}, prefix, sys.executable)


def test_without_pyspark_it_says_how_to_get_it(environ: dict[str, str], prefix: str) -> None:
    with pytest.raises(Unavailable, match="make spark-env"):
        spark_python(environ, prefix, sys.executable)


def test_the_environment_beside_ours_counts_when_it_is_complete(environ: dict[str, str], prefix: str) -> None:
    beside = Path(f"{prefix}-spark")
    (beside / "bin").mkdir(parents=True)
    (beside / "bin" / "python").touch(mode=0o755)
    with pytest.raises(Unavailable, match="not installed"):
        spark_python(environ, prefix, sys.executable)
    (beside / ".made").touch()
    assert spark_python(environ, prefix, sys.executable) == str(beside / "bin" / "python")


def test_the_interpreter_that_is_named_counts_more(environ: dict[str, str], prefix: str) -> None:
    named = environ | {"PENSTOCK_SPARK_PYTHON": sys.executable}
    assert spark_python(named, prefix, "ours") == sys.executable
    with pytest.raises(Unavailable, match="there is no /nowhere/python, which PENSTOCK_SPARK_PYTHON names"):
        spark_python(environ | {"PENSTOCK_SPARK_PYTHON": "/nowhere/python"}, prefix, "ours")


def test_our_own_interpreter_is_good_if_it_has_pyspark(
    environ: dict[str, str], prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(interpreters, "find_spec", lambda name: name == "pyspark")
    assert spark_python(environ, prefix, "ours") == "ours"
