"""Test suites of other projects, against Penstock and beside it against Apache Kafka: `make suites`.

A *suite* (`suites/`) builds tests of another project from a package index, and runs them against *brokers*
(`brokers/`): three gateways, or three brokers of Kafka. `results.py` keeps the outcomes. Start at `__main__.py`.
"""
