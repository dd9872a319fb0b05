"""Streams groups (KIP-1071): topologies of Kafka Streams, their tasks, and the members that do these (ADR 0064).

`topology` and `assignor` know no group. `progress` moves a member towards its target, `group` holds the group's states,
and `commands` has the heartbeat. Start with `group.py`.
"""
