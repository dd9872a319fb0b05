"""Fakes in memory: clocks, virtual time, a bus and a journal. They import only the runtime's Protocols and errors."""
