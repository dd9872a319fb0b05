"""Exports of topics to Parquet files and Iceberg tables.

Imports `source` and the modules above both packages. Start with `export.py`; `targets.py` has the two kinds of targets,
`files.py` the tasks, `value_schema.py` the columns of values.
"""
