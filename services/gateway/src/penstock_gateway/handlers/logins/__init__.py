"""Handlers of logins (SASL). They may import `security`; start reading at `security/logins.py`."""
