"""Configurations that clients can set: their names, defaults, documentation and checks. Pure.

Each module holds the configurations of one kind of resource. Start with `topics`.
"""
