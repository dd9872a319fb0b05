"""Share groups (KIP-932): members, and the records in flight of each shared partition.

It may import `state`, `log` and `groups`.

Start with `group.py` for members and targets, and `partition.py` for the states of records. `offset_ranges.py` has the
arithmetic of ranges, and `first_offsets.py` the first offset of a group in a partition. `commands.py`, `acquire_ack.py`
and `offsets.py` have the commands.
"""
