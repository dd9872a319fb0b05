"""Objects of sequencers in the object store: snapshots, the journal's archive, and the marker of the journal.

It may import `core` for the state in snapshots. Start reading at the two formats, `snapshot_format.py` and
`archive_format.py`, which are pure; the `_store` modules list and read the objects.
"""
