"""The choice of segments to merge, without I/O.

May import contracts only. Start with `planner`; `listing` keeps the segments to choose from.
"""
