"""An independent model of a Kafka cluster: topics, logs, groups and transactions, without limits and without speed.

The model is written from Kafka's rules. It shares no code with the state machine, so an error of one is no error of the
other: nothing here may import `penstock_sequencer`. The journal gives the order of operations and their outcomes. The
model computes the state itself, and reports every outcome that Kafka's rules do not allow. Start at `cluster.py`.
"""
