"""The logs of partitions: idempotent producers, control markers, retention, and the reclaim of storage.

It imports `state`.

Start with `partitions.py`. `producers.py` is on the hot path of each commit. `retention.py` and `reclaim.py` are what
janitors ask for; `segment_queries.py` is what compactors and audits ask.
"""
