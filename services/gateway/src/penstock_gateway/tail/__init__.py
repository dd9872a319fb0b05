"""The tail index: the newest extents of partitions, from announcements, and the waits of fetches for new data.

It imports no other package of the gateway. Start reading at `tail_index.py`, which opens with the rules that keep the
index correct. `tail_subscriber.py` connects it to the bus. `tail_index.py` and `control_batches.py` do no I/O.
"""
