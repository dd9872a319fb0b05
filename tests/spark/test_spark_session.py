"""The Spark session that all tests here share."""

import sys
from typing import Any

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]


def test_a_task_runs_with_the_python_of_its_driver(spark: Any) -> None:
    def interpreter(_number: int) -> str:
        return sys.executable

    assert set(spark.sparkContext.parallelize([1, 2], 2).map(interpreter).collect()) == {sys.executable}
