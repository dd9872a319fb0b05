"""The Kafka wire protocol as pure functions: bytes in, values out; no sockets, no clock, no `async`."""
