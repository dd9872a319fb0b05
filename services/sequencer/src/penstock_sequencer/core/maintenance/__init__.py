"""The commands and queries of compactors, janitors and the custodian, who work on the shared store.

It imports `state`, `log`, `commits` and `topics`.

Start with `replace_extents.py`, the commit of a compaction. The leases here only divide work: correctness does not
depend on them. `feature_level.py` raises the level of the cluster.
"""
