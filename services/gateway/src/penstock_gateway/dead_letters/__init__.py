"""Dead letters of share groups (KIP-1191): reads dead records, and writes their dead letters to the groups' topics.

May import `share`, `produce`, `fetch`, `tail`, `metadata` and `kafka`. Start with `writer.py`. ADR 0068 has the
decision.
"""
