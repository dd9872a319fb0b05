"""Delegation tokens (KIP-48): a client logs in as another user, with a password that ends by itself (ADR 0033).

It may import `state_copy.py`. Start with `delegation_tokens.py`, then `token_keys.py` for the passwords and
`token_cache.py` for the tokens of the cluster.
"""
