"""The logs of partitions: idempotent producers, control markers, retention, and the reclaim of storage.

It imports `state`.

Start with `partitions.py`. `producers.py` is on the hot path of each commit. `retention.py` and `reclaim.py` apply the
commands of janitors; `segment_queries.py` answers the queries of compactors and audits.
"""
