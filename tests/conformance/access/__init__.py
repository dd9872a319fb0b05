"""Compares Penstock's access control with that of Apache Kafka, whose answers are kept beside this package.

`verdicts.py` compares the rules for bindings with Kafka's StandardAuthorizer.
"""
