"""Queries: reads of the state that any sequencer answers. Each module holds the queries of one domain.

A replica answers a query after it has applied the entry `min_sequence`. A query with `fresh` also sees every entry
that was in the journal when the query arrived (ADR 0009). A view is true at its journal sequence `sequence`. With
a `failure` it has no other content, and the sender retries. Start with `topics` and `log`.
"""
