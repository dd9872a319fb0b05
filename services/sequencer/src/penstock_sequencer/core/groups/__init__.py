"""Classic groups and consumer groups (KIP-848), with their committed offsets.

It imports `state`, and its own package `assignment`, which knows no group.

For each kind, `*_group.py` is the inner life and `*_commands.py` the commands: start with `classic_group.py` and
`consumer_group.py`. `classic_members.py` and `migration.py` are the passage from one kind to the other.
"""
