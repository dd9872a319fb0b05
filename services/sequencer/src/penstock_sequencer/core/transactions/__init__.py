"""Transactional producers: their ids, the contents of a transaction, and its end (ADR 0012).

It may import `state`, `regex`, `log` and `groups`.

Start with `lifecycle.py`, which opens with the states of a transaction; `coordinator.py` has the commands.
"""
