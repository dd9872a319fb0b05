"""How commands reach the Kafka listener of a cluster: addresses, logins, profiles, and the client.

`settings` reads flags, the environment and `profiles`; `session` connects and runs a verb. The client is
kafka-python's, which is imported only when a command connects. This room imports no command.
"""
