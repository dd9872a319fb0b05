"""The choice of segments to merge, without I/O.

Imports contracts only. Start with `planner.py`; `listing.py` keeps the segments that it chooses from.
"""
