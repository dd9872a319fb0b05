"""The custodian's work: one replica at a time holds the lease, archives the journal, and takes snapshots.

It may import `replication`, `storage` and `core`. Start reading at `custody.py`, then `archiver.py` and
`snapshotter.py`. The decisions are in `lease.py`, `backlog.py` and `snapshot_schedule.py`, which do no I/O.
"""
