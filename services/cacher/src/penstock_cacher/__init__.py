"""The cacher: keeps chunks of segments in memory for the gateways of its zone, and loads each chunk once.

Start with `app`, then `serve` (requests and answers) and `reads` (sources of chunks). `chunks` and `chunk_cache` decide
and do no I/O. May import the shared library, and no other service.
"""
