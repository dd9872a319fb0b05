"""The cacher: keeps chunks of segments in memory for the gateways of its zone, and loads each chunk once.

Start reading at `app.py`, then `serve.py` (requests and answers) and `reads.py` (where a chunk comes from). `chunks.py`
and `chunk_cache.py` decide and do no I/O. It may import the shared library, and no other service.
"""
