"""Answers the other services: commands, queries, and the heartbeats of group members.

It may import `replication` and `core`. Start reading at `request_server.py`; `query_table.py` names the pure function
that answers each query. `member_liveness.py` finds silent members, and `liveness_gossip.py` proposes that they expire.
"""
