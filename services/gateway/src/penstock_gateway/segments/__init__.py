"""Returns the bytes of segments, from the zone's cachers or from the store; it knows no consumers and no batches.

It imports no other package of the gateway. Start reading at `segment_reader.py`, then `cache_client.py`. The decisions
are in `range_planning.py`, `hedging.py` and `cache_ring.py`, which do no I/O.
"""
