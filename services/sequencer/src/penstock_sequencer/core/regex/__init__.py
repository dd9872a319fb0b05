"""Regular expressions over topic names, in RE2's syntax and in linear time.

It imports nothing of the state machine.

Start with `regex_subscriptions.py`, which runs a pattern; `regex_syntax.py` reads one.
"""
