"""Takes Produce requests: checks their batches, sends them to flushers in order, and answers after the commit.

It may import `coordination`, `metadata`, `kafka` and the metrics. Start reading at `produce_service.py`, one request
from its arrival to its answer. `record_validation.py` checks single records, only for topics that need it.
`producer_route.py` keeps the order of a connection's requests. `flush_packing.py`, `topic_rules.py` and
`produce_response.py` do no I/O.
"""
