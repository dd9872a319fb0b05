"""The needs of every job: its segments by lease, the replacement of extents, and the Spark session.

Imports the metrics, contracts and `penstock.runtime`. Start with `job_client.py`.
"""
