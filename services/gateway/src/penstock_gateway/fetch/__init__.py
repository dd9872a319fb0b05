"""Reads logs for consumers: the Fetch API, and the reads of ShareFetch and ListOffsets.

It may import `segments`, `tail`, `metadata` and `kafka`. Start reading at `fetcher.py`, one request from its arrival to
its answer, then `log_reader.py`, which does all reads. `batch_assembly.py`, `prefetch.py` and `partition_read.py`
decide and do no I/O.
"""
