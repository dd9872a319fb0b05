"""Telemetry of clients (KIP-714): which metrics each client pushes, how often, and the rules of its requests.

May import `kafka` and `metrics`. Start with `telemetry.py`; `client_instances.py` has the rules.
"""
