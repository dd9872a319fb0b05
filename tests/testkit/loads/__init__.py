"""Loads on a running cluster, and the checkers of their clients' results."""
