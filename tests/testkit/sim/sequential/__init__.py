"""Clients that send one request at a time, each again until it is acknowledged: their order must last."""
