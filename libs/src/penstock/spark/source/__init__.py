"""Topics as tables for Spark: `spark.read.format("penstock")` and `spark.readStream`.

May import the modules of `penstock.spark`, `penstock.runtime`, `penstock.objectstore` and `penstock.segment`. Start
with `data_source`, which Spark calls. The driver plans (`config`, `catalog`, `planning`, `splits`), and each task reads
its split (`reading`, `columns`). Only `data_source` imports PySpark.
"""
