"""`penstock user`, `penstock acl` and `penstock token`, one module each.

They may import the modules of `penstock.cli` that are no commands. Start with `user.py`.
"""
