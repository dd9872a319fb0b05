"""The flusher: packs produce requests of gateways into segments, stores them, and commits them.

Start with `app`, then `intake` (messages into the buffer) and `flush` (closed buffers into committed segments).
`buffer`, `reassembly`, `put_latency` and `commit_group` decide and do no I/O. `serve` answers cachers from `recent`,
the newest segments in memory. May import the shared library, and no other service.
"""
