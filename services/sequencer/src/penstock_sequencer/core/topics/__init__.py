"""Topics, their deletion and recovery, configurations, and client quotas.

It imports `state`, `log`, `groups`, `share` and `all_groups`.

Start with `topics.py`, then `deletion.py`. `configs.py` also holds the configurations of groups and of the cluster.
"""
