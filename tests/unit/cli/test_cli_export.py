"""`penstock export` where it cannot work: one sentence, and an exit code."""

import importlib.util
from typing import Any

import pytest

from penstock.cli import main, spark_python

ARGUMENTS = ["export", "--topic", "t", "--to", "/nowhere", "--format", "parquet"]


def hide(monkeypatch: pytest.MonkeyPatch, *hidden: str) -> None:
    """Let these packages be not installed."""
    find = importlib.util.find_spec

    def find_others(name: str) -> Any:
        return None if name in hidden else find("json")

    monkeypatch.setattr(importlib.util, "find_spec", find_others)


def test_without_pyspark_it_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    hide(monkeypatch, "pyspark")
    monkeypatch.setattr(spark_python, "missing_java", lambda environ: "")
    monkeypatch.setattr(spark_python, "find_spark_python", lambda environ: None)
    assert main(ARGUMENTS) == 1
    assert capsys.readouterr().err.startswith("penstock: PySpark is not installed: pip install 'penstock[spark]', or ")


def test_without_what_exports_need_besides_it_says_how_to_get_that(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    hide(monkeypatch, "fastavro")
    assert main(ARGUMENTS) == 1
    assert capsys.readouterr().err == (
        "penstock: exports need fastavro, which is not here; pip install 'penstock[export]' brings it\n"
    )


@pytest.mark.parametrize("arguments", [ARGUMENTS[:-2], [*ARGUMENTS[:-1], "csv"], ["export"]])
def test_what_it_does_not_understand_ends_with_two(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert "usage: penstock export" in capsys.readouterr().err
