"""Benches: figures with budgets, measured on this machine by `make bench`.

Each bench is a function that yields `Result`s. Start with `__main__.py`, which lists them all.
"""
