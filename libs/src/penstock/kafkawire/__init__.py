"""The Kafka wire protocol as pure functions: bytes in, values out; no sockets, no clock, no `async`.

It imports msgspec, cramjam, crc32c and the standard library, and nothing else of Penstock. Start with `api` for the
messages, with `frame` for requests on a connection, and with `records` for record batches.
"""
