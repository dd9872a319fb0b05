"""The content of each page, as values: the HTML and `/api/v1` show the same.

A page reads a survey and a reading of processes (`context.py`), or asks gateways as the user. `overview.py` is the
first page.
"""
