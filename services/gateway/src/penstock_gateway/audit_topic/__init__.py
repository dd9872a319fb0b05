"""The topic `__penstock_audit`: which changes of administrators become events, and the writer of all events (ADR 0037).

Start with `writer.py`. The events of logins and denials come from the package `security`, which also has their queue.
"""
