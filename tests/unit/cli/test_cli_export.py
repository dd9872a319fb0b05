"""`penstock export` without a needed package: one sentence and an exit code."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path

import pytest

from penstock.cli import export, main, parse_arguments
from penstock.cli.spark_python import need_spark_python, run_with_spark

ARGUMENTS = ["export", "--topic", "t", "--to", "/nowhere", "--format", "parquet"]


def run_without(package: str, tmp_path: Path) -> int:
    """Export with a Python that has all packages but this one, and no other Python that has PySpark."""
    (tmp_path / "java").touch(mode=0o755)

    def need_python(_environ: Mapping[str, str]) -> Path:
        return need_spark_python({"PATH": str(tmp_path)}, prefix=str(tmp_path), has_own=lambda: False)

    run_elsewhere = partial(run_with_spark, need_python=need_python)
    arguments = parse_arguments(ARGUMENTS)
    return export.run(arguments, has=lambda name: name != package, run_elsewhere=run_elsewhere)


def test_without_pyspark_the_error_names_the_installation(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_without("pyspark", tmp_path) == 1
    assert capsys.readouterr().err.startswith(
        "penstock: PySpark is not installed: run make spark-env in a checkout (450 MB), or "
    )


def test_without_another_package_the_error_names_the_installation(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_without("fastavro", tmp_path) == 1
    assert capsys.readouterr().err == (
        "penstock: exports need fastavro, which is not installed: pip install 'penstock[spark]'\n"
    )


@pytest.mark.parametrize("arguments", [ARGUMENTS[:-2], [*ARGUMENTS[:-1], "csv"], ["export"]])
def test_invalid_flags_end_with_code_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert "usage: penstock export" in capsys.readouterr().err
