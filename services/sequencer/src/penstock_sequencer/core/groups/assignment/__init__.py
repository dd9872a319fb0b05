"""Subscriptions, and which member gets which partitions.

It imports `state` and `regex`.

Start with `assignors.py`. `classic_subscription_codec.py` reads and writes what classic members tell each other.
"""
