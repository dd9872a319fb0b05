"""The systems that are compared; all have the Protocol of `system.py`."""
