"""Checks that the journal can be trusted, before the sequencer serves and while it runs.

`identity.py`: it is this cluster's journal. `durability.py`: its servers keep acknowledged entries. `completeness.py`:
it reaches as far as its archive. The room may import `storage` and, for the halt, `replication`.
"""
