"""Topics, brokers and configurations as clients see them, and the commands that change them.

It may import `kafka`. Start reading at `partition_lookup.py`, which finds the partitions of requests, and
`admin_commands.py`. `config_view.py` and `config_updates.py` are for the APIs about configurations.
"""
