"""Users with their SCRAM verifiers, access control lists and delegation tokens: the commands and the queries.

It imports `state`. The machine keeps them and checks no access: gateways do (ADR 0034). Start with `users.py`, then
`acls.py` and `tokens.py`.
"""
