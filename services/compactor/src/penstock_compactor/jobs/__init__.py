"""The shared parts of all jobs: leases of segments, the replacement of extents, and the Spark session.

May import the metrics, contracts and `penstock.runtime`. Start with `job_client`.
"""
