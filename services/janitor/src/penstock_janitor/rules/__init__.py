"""The rules of deletion, without I/O: the state of an object, and the facts about the journal that decide it.

Imports contracts only. Start with `classification.py`; then `journal.py`.
"""
