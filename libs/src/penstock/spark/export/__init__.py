"""Exports of topics to Parquet files and Iceberg tables.

May import `penstock.spark.source` and the modules of `penstock.spark`. Start with `export`. `targets` has the two kinds
of targets, `files` the tasks, `value_schema` the columns for values.
"""
