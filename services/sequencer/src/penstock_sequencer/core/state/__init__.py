"""The state as plain structures: tables and columns, their invariants, and the limits.

No structure here depends on a command.

Start with `cluster.py` for the whole state, and `limits.py` for every limit. `segments.py` and `extents.py` hold the
two large tables, in columns.
"""
