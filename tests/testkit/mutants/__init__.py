"""Mutants: small faults planted into the services' source, to show which tests find them.

`catalog` lists the mutants. `importing` plants one when Python loads the module that it changes, so a mutant needs a
process of its own. `python -m tests.testkit.mutants NAME -- COMMAND` runs any command under a mutant, `simulations`
runs seeds of the simulator under one. Nothing here may import `penstock` or a service before the mutant is planted.
"""
