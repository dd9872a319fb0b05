"""The console as a Kafka client, with the login of its user: records, changes, and the details of groups.

The client of the command line waits in threads, so each call here runs in one. Gateways decide about access.
"""
