"""Kafka Streams with `group.protocol=streams` and exactly-once, while its instances and gateways are killed.

`make streams` runs it, each night. It needs Java and Maven, and some minutes.
"""
