"""The audit of a cluster: whether its bucket has exactly the objects of its journal, undamaged.

Imports `penstock.spark`, `penstock.runtime`, `penstock.objectstore` and `penstock.segment`. Start with `audit.py`.
`inventory.py` collects the facts, `object_check.py` compares them, `segment_check.py` reads segments on Spark.
"""
