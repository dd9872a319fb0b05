"""Share groups (KIP-932): fetches, acknowledgements and sessions of their members.

May import `fetch`, `tail`, `metadata` and `kafka`. Start with `fetcher.py`, which answers ShareFetch.
"""
