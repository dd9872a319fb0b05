"""Checkers of a run: they compare all entries and answers with the guarantees of the design; start at `oracle.py`."""
