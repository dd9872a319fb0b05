"""Commits of segments: they give the batches of flushers their offsets.

It imports `state`, `log` and `transactions`.

Start with `segment_commit.py`, the hot loop of the machine. `transactional_batches.py` checks a batch against the
transaction of its producer first.
"""
