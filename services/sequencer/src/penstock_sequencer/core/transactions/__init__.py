"""Transactional producers: their ids, what belongs to a transaction, and its end (ADR 0012).

It imports `state`, `regex`, `log` and `groups`.

Start with `lifecycle.py`, which opens with the states of a transaction; `coordinator.py` has the commands.
"""
