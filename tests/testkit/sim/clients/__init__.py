"""The Kafka clients and compactors of a run; start reading at `kafka.py` and `producer.py`."""
