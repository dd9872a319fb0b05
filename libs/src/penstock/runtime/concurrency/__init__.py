"""Tools for tasks that share something: a budget of bytes, or one load for many readers. Imports nothing of ours."""
