"""Regular expressions over names and attributes, in RE2's syntax and in linear time.

Consumer groups subscribe to topics with them, and subscriptions to metrics select clients. It imports nothing else of
`contracts`. Start with `regex_subscriptions.py`, which runs a pattern; `regex_syntax.py` reads one.
"""
