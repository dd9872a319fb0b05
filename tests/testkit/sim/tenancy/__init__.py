"""Simulations of virtual clusters that one deployment creates, deletes, brings back and removes, and of their pools."""
