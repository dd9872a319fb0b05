"""`penstock rebuild`: makes a new journal from the object store alone, after the journal was lost.

It may import `storage` and `core`. Start reading at `rebuild.py`, which calls the parts in their order:
`preconditions.py` (may it run), `replay.py` (the exact part), `footers.py`, `order.py` and `recover.py` (segments whose
commits are lost), `new_journal.py` (the result). `order.py` and `recover.py` decide and do no I/O.
"""
