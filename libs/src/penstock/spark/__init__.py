"""Bulk work on data, mostly in Spark. This is the only package that imports PySpark.

`source` reads topics as tables, `export` writes them to files. Both use the modules here, and so do the compactor and
the audit: `session` (the Spark session), `ranges` (the object store for tasks), `window` and `varints`. May import
`penstock.segment`, `penstock.objectstore` and `penstock.runtime`. Start with `session` and `ranges`.
"""


def register(spark: object, *, pushdown: bool = False) -> None:
    """Let a session read topics with `spark.read.format("penstock")`. For `pushdown` see docs/guides/spark.md."""
    from penstock.spark.source.data_source import register as register_source

    register_source(spark, pushdown=pushdown)
