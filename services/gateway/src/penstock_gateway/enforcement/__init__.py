"""Checks requests against access control lists, before and after their handlers: handlers know nothing of it.

A check sees a request on its way to the handler, and the answer on its way back. It answers for the parts that the
client may not use, and passes the rest on. `all_checks.py` has the checks of each API, in the order of Kafka's
KafkaApis. It may import all packages below the handlers, and the type of a handler. Start reading at `guard.py`.
Produce is the exception: its service asks the authorizer itself, because its requests overlap.
"""
