"""The parts that every service process shares. Start with `process.host`, which every service uses.

Each package may import the later ones in this list: `process` (life, settings, health), `nats` (all that touches
nats-py), `bus` (protocol, presence, sequencer client), `clock` and `journal` (protocols). `concurrency` stands alone.
"""
