"""Two checks before a loop acts: the bucket belongs to the journal, and no other janitor has the task.

Imports `rules`. Start with `guard.py`; `task_leases.py` divides the work between janitors. `outcomes.py` checks the
outcomes of commands.
"""
