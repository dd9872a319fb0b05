"""The simulator: the real services on virtual time, with a bus, a journal and a store that fail by the seed.

It may import every service. Start reading at `run.py`, then `world.py`, and `nemesis.py` for the faults.
"""
