"""Key compaction: keeps the last record of each key, for topics with the policy `compact`.

May import `jobs`. Start with `work`, which finds logs and starts jobs. `plan` decides, `job` runs on the driver,
`tasks` in Spark's workers. Modules that need Arrow are imported when the first job begins.
"""
