"""Traces: the spans of sampled requests, on their way through several processes (ADR 0051).

May import the clock and `penstock.contracts`. Start with `traces.py`, the interface for services. Only `otel.py`
imports OpenTelemetry, and only `opening.py` imports that module, when traces are switched on.
"""
