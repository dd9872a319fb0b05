"""`penstock export` where it cannot work: one sentence, and an exit code."""

import importlib.util
from typing import Any

import pytest

from penstock.cli import main

ARGUMENTS = ["export", "--topic", "t", "--to", "/nowhere", "--format", "parquet"]


def test_without_pyspark_it_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    find = importlib.util.find_spec

    def find_none(name: str) -> Any:
        return None if name == "pyspark" else find(name)

    monkeypatch.setattr(importlib.util, "find_spec", find_none)
    assert main(ARGUMENTS) == 1
    assert capsys.readouterr().err == (
        "penstock: exports need pyspark, which is not here; pip install 'penstock[export]' brings it\n"
    )


@pytest.mark.parametrize("arguments", [ARGUMENTS[:-2], [*ARGUMENTS[:-1], "csv"], ["export"]])
def test_what_it_does_not_understand_ends_with_two(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert "usage: penstock export" in capsys.readouterr().err
