"""Share groups (KIP-932): heartbeats, fetches, acknowledgements, and their offsets."""
