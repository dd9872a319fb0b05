"""Two conditions before a loop acts: the bucket is the journal's, and no other janitor has the task.

Imports `rules`. Start with `guard.py`; `task_leases.py` divides the work between janitors.
"""
