"""Chromium for tests of pages: it is driven by the DevTools protocol, with the input of a user. Start at `page.py`."""
