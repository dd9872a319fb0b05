"""The pure state machine of the virtual cluster: no clock, no chance, no I/O; the journal is its only input."""
