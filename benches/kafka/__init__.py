"""Penstock beside Apache Kafka on the same cores: `make bench-kafka` prints a table with ratios.

`lines.py` is the table: each line has a workload and its goals. A *system* (`systems/`) is a Penstock or a Kafka
that this package starts. A *workload* (`workloads/`) starts *loads* (`loads/`), each a process with Kafka clients, and
measures for some seconds. `measuring.py` runs all lines, and `comparison.py` makes the table. Start at `lines.py`.
"""
