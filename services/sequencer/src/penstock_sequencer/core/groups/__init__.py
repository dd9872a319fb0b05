"""Classic groups and consumer groups (KIP-848), with their committed offsets.

It may import `state` and its own package `assignment`, which knows no group.

For each kind of group, `*_group.py` holds its states and `*_commands.py` its commands. Start with `classic_group.py`
and `consumer_group.py`. `migration.py` converts groups from one kind to the other, and `classic_members.py` has the
commands of classic members in consumer groups. Commands that can be large have a `preview_*` function (`previews.py`).
"""
