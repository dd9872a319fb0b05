"""Processes with Kafka clients that load a system until they are stopped; `load.py` has their protocol."""
