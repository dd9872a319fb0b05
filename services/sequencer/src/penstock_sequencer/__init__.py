"""The sequencer: replicates a pure state machine over the journal and answers the other services from its state.

Start reading at `app.py`, which builds everything, and `service.py`, one replica without its process. The state machine
is in `core`, which imports none of the packages around it.
"""
