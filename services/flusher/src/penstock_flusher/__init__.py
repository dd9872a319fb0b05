"""The flusher: packs produce requests of gateways into segments, stores them, and commits them.

Start reading at `app.py`, then `intake.py` (messages into the buffer) and `flush.py` (closed buffers into committed
segments). `buffer.py`, `reassembly.py`, `put_latency.py` and `commit_group.py` decide and do no I/O. `serve.py` answers
cachers from `recent.py`, the newest segments in memory. It may import the shared library, and no other service.
"""
