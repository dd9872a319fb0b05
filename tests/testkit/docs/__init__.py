"""The generated blocks of documentation pages; start reading at `__main__.py`."""
