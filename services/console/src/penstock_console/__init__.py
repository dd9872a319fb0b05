"""The console: web pages and an API that show a cluster, and change it where that is switched on.

`survey` reads the state of the cluster from sequencers and processes. `kafka` speaks to gateways with the login of the
user. `pages` makes the content of each page, and `web` serves it, as HTML and at `/api/v1`. The console may use
`penstock.cli`: both do the same for people, in the same words (ADR 0049). Start reading in `app.py`.
"""
