"""Merging jobs: extents of many segments become one extent per partition in a new segment.

Imports `planning` and `jobs`. Start with `work.py`, the job on the driver; then `outputs.py`, which plans tasks, and
`merge_task.py`, which runs in Spark's workers.
"""
