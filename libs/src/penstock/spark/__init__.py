"""Work on much data, in Spark and beside it. This is the only package that imports PySpark.

`source/` reads topics as tables, `export/` writes them to files. Both use the modules here, and so do the compactor and
the audit: `session.py` (the Spark session), `ranges.py` (the object store for tasks), `window.py` and `varints.py`.
"""


def register(spark: object, *, pushdown: bool = False) -> None:
    """Let a session read topics as `spark.read.format("penstock")`. For `pushdown` see docs/spark.md."""
    from penstock.spark.source.data_source import register as register_source

    register_source(spark, pushdown=pushdown)
