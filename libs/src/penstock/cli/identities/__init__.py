"""Certificates and the files of clients, for `penstock up --secure` and `penstock credentials`.

Knows no command and imports none. Start with `certificates`; `client_files` has the settings of Kafka's clients.
"""
