"""Tools for tasks that share a budget of bytes, one load or their wake-ups. Imports nothing of Penstock."""
