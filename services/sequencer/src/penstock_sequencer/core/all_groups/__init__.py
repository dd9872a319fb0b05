"""Commands and queries for groups of every kind.

It may import `state`, `groups` and `share`.

Start with `commands.py`: deadlines, silent members, deleted groups, and topics that change. `queries.py` has the reads.
"""
