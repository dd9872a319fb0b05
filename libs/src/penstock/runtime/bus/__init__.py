"""The bus between services, independent of NATS: its protocol, presence, and the client of the sequencers.

May import `penstock.runtime.clock` and `penstock.contracts`. Start with `bus`.
"""
