"""Key compaction: of all records of a key the last one stays, for topics with the policy `compact`.

Imports `jobs` only. Start with `work.py`, which finds logs and starts jobs. `plan.py` decides, `job.py` runs on the
driver, `tasks.py` in Spark's workers. Modules that need Arrow are imported when the first job begins.
"""
