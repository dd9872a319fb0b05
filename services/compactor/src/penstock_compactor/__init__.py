"""The compactor: merges flushed segments into larger ones, and removes older records of a key.

Start reading in `service.py` (the loop). `planning/` chooses segments, `merge/` and `keys/` are the two kinds of jobs,
`jobs/` has what both need: leases of segments, the commands that replace extents, and Spark. `app.py` wires everything.
"""
