"""The loops that look for objects to delete, and the one place that deletes them.

Imports `rules`, `coordination` and the metrics. Start with `deleter.py`. Then `reaper.py` (dead segments), `sweep.py`
(orphans) and `maintenance.py` (abandoned uploads and unknown keys).
"""
