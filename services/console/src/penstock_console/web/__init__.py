"""The web server: routes, login, HTML and JSON of each page, and the files that browsers load.

`routes.py` lists all pages and actions; `/api/v1` and its description come from the same lists.
"""
