"""Commands and queries that concern groups of every kind.

It imports `state`, `groups` and `share`.

Start with `commands.py`: deadlines, silent members, deleted groups, and topics that change. `queries.py` has the reads.
"""
