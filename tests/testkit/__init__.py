"""The base of all tests: servers, fakes, clusters, loads, mutants and the simulator.

It may import the whole product; the product never imports it. Start reading at `fakes/virtual_time.py` and
`fakes/memory_bus.py` for unit tests, at `clusters/cluster.py` for end-to-end tests, at `sim/run.py` for simulations.
"""
