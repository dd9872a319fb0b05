"""The end of a sequencer whose journal cannot be trusted, in one sentence of what was found and one of what to do."""

from penstock.contracts.errors import PenstockError

REMEDY = (
    "Nothing was changed or deleted. Bring the journal's stream back from the nats-server's own files or a backup, "
    "or begin anew under another cluster name"
)


class Halted(PenstockError):
    """The journal is not the one that this cluster was built on, or parts of it are missing; an operator has to act."""


def halted_at(sequence: int, error: Exception) -> Halted:
    """The halt after having applied the journal up to `sequence`."""
    return Halted(f"the sequencer halted after journal entry {sequence}: {error}. {REMEDY}")
