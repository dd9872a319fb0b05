"""The state as the bytes of a snapshot, and back.

It imports all packages that derive a part of the state from the written fields, and no command.

Start with `codec.py`. `shapes.py` is the format (docs/formats/snapshot.md), and `migrations.py` holds its later parts.
"""
