"""What every service process shares. Start with `process.host`, which every service uses.

Packages and modules, each may import those behind it: `process` (life, settings, health), `nats` (all that touches
nats-py), `bus` (protocol, presence, sequencer client), `clock` and `journal` (protocols). `concurrency` stands alone.
"""
