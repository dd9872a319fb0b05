"""Whole clusters for tests: Penstock processes on real servers, or the compose project; start at `cluster.py`."""
