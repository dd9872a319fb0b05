"""Everything that works on much data, in Spark and beside it."""


def register(spark: object, *, pushdown: bool = False) -> None:
    """Let a session read topics: then `spark.read.format("penstock")` is there. For `pushdown` see docs/spark.md."""
    from penstock.spark.source import register as register_source

    register_source(spark, pushdown=pushdown)
