"""Logins at an issuer by OpenID Connect: authorization code flow with PKCE. Start reading in `flow.py`.

It may import `penstock`, and no other package of the console.
"""
