"""Merge jobs: join extents of many segments into one extent per partition in a new segment.

May import `planning` and `jobs`. Start with `work`, the job on the driver, then `outputs`, which plans tasks, and
`merge_task`, which runs in Spark's workers.
"""
