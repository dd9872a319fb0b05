"""Users with their SCRAM verifiers, and access control lists: the commands that change them, and the query.

It imports `state`. The machine keeps them and checks no access: gateways do (ADR 0034). Start with `users.py`, then
`acls.py`.
"""
