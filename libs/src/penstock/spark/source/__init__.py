"""Topics as tables: `spark.read.format("penstock")` and `spark.readStream`.

Imports the modules beside this package, `penstock.runtime`, `penstock.objectstore` and `penstock.segment`. Start with
`data_source.py`, which Spark calls. The driver plans (`config.py`, `catalog.py`, `planning.py`, `splits.py`), and each
task reads its split (`reading.py`, `columns.py`). Only `data_source.py` imports PySpark.
"""
