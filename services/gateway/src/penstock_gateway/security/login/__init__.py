"""Logins of Kafka clients (SASL).

It may import `kafka` and `metrics`. Start reading at `logins.py`, which takes the requests of a login. Each mechanism
has a module: `scram_login.py`, `plain_login.py` and `oauth_bearer.py`. `scram.py` has the arithmetic of SCRAM, and
`login_setup.py` builds all of it from the settings.
"""
