"""Listeners with TLS, users, logins and access control: the user of a client, and the operations it may do.

It may import `kafka` and `metrics`. Start reading at `listener_security.py`, the protocol of each listener. Access
control starts at `authorizer.py`, then `acl_index.py`. `api_needs.py` is the table of all APIs with the operations that
each needs.
"""
