"""Clients of two principals in small tables: one fills its share, and the others still find places (ADR 0040)."""
