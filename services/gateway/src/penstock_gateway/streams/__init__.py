"""Streams groups (KIP-1071): the topologies of their members, and the topics that a group needs for itself.

May import `quotas`, `security`, `metadata` and `kafka`. Start with `internal_topics.py`.
"""
