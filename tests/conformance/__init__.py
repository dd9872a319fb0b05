"""Conformance runs: stock clients show which scenarios work with Penstock (`make conformance`).

Start with `__main__.py`, which runs the scenarios of `scenarios/` with the clients of `catalogue.py`.
"""
