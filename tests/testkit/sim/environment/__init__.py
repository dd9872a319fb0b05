"""The simulated environment of services: time, bus, journal, store, sockets, processes; start at `shared.py`."""
