"""The janitor: removes expired records, deletes dead segments and orphans, and ends abandoned uploads.

Start reading in `service.py` (the loops), then `retention.py` and `deletion/`. `rules/` decides which objects may be
deleted. `coordination/` compares the bucket with the journal, and gives each task to one janitor at a time.
`explain.py` answers `penstock janitor explain`. `app.py` wires everything.
"""
