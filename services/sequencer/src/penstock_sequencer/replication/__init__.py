"""One replica of the state machine: it applies the journal, and puts commands into it.

It may import `storage` and `core`. Start reading at `replica.py`, which reads the journal, and `proposer.py`, which
writes to it. `hash_chain.py` and `proposal_queue.py` decide and do no I/O.
"""
