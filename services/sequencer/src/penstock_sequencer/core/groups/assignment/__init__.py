"""Subscriptions of consumer groups, and the assignment of partitions to members.

It may import `state` and `regex`.

Start with `assignors.py`. `classic_subscription_codec.py` reads and writes the metadata of classic members.
"""
