"""NATS: all that touches nats-py, and the journal over JetStream.

May import `penstock.runtime.bus`, `journal` and `clock`. Start with `client`: its `connect_nats` opens the other
parts. `patched_client` is the only module that touches private parts of nats-py.
"""
