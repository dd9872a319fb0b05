"""The compactor: merges flushed segments into larger ones, and removes older records of a key.

Start with `service` (the loop). `planning` chooses segments, `merge` and `keys` are the two kinds of jobs. `jobs` has
the shared parts: leases of segments, commands that replace extents, and Spark. `app` wires the parts. May import the
shared library, and no other service.
"""
