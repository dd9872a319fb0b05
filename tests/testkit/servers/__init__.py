"""Real servers for tests, as child processes or containers; start reading at `backend.py`."""
