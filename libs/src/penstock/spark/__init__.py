"""Everything that works on much data, in Spark and beside it."""


def register(spark: object) -> None:
    """Let a session read topics: then `spark.read.format("penstock")` is there, and predicates are pushed down."""
    from penstock.spark.source import register as register_source

    register_source(spark)
