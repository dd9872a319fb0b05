"""The pure state machine: it applies journal entries to the state of the cluster, and answers queries.

It has no I/O, no clock and no randomness, so replicas that apply the same entries have the same state.

It imports `msgspec`, the standard library's data structures, and `penstock.contracts`. Its packages are layers, which
import-linter checks (`pyproject.toml`): `machine`, `queries` and `previews` on top, one package for each domain, and
`state` below.

Start with the rules in `machine.py`, then the invariants in `state/cluster.py`, then the package of one domain.
"""
