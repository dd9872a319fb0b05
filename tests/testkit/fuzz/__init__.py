"""A structured fuzzer: hostile clients against a whole Penstock, beside a canary whose answers are checked and timed.

`make fuzz MINUTES=n SEED=n` runs it. Start reading at `run.py`. `values.py` makes requests from the schema, `frames.py`
encodes and damages them, and `hostile_client.py` sends them in hostile ways. `canary.py` is a process of its own.
"""
