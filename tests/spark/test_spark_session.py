"""The Spark session that all tests here share."""

import sys
from typing import Any

import pytest

from penstock.spark.session import LOCAL_JAVA_OPTIONS

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]


def test_a_task_runs_with_the_python_of_its_driver(spark: Any) -> None:
    def interpreter(_number: int) -> str:
        return sys.executable

    assert set(spark.sparkContext.parallelize([1, 2], 2).map(interpreter).collect()) == {sys.executable}


def test_a_jvm_on_this_machine_takes_little_cpu_time_for_itself(spark: Any) -> None:
    options = spark.sparkContext.getConf().get("spark.driver.extraJavaOptions")
    assert LOCAL_JAVA_OPTIONS in options and "log4j2.properties" in options
