"""Tools for tasks that share a budget of bytes or one load. Imports nothing of Penstock."""
