"""`penstock journal`: moves the journal to other NATS servers, or changes its copies at the same servers (ADR 0058).

It may import `storage`. Start reading at `move.py`, which calls the parts in their order: `copying.py` (entries, and
the mark that ends the old journal) and `landing.py` (objects of the landing store). `copies.py` is the other command.
"""
