"""Handlers of logins (SASL). They may import `security`; start reading at `security/login/logins.py`."""
