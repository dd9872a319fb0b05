"""Users, logins and access control: the package decides who a client is, and which operations it may do.

It may import `kafka` and `metrics`. Start reading at `authorizer.py`, then `acl_index.py`. `api_needs.py` is the table
of all APIs with the operations that each needs.
"""
