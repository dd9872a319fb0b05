"""NATS: all that touches nats-py, and the journal over JetStream.

May import `penstock.runtime.bus`, `journal` and `clock`. Start with `client`, whose `connect_nats` opens everything
else. `patched_client` is the only module that touches private parts of nats-py.
"""
