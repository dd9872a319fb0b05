"""How much a decoder keeps, reads and waits for."""

import msgspec


class SchemaLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of one decoder."""

    schemas_max: int = 200  # readers that are kept
    failures_max: int = 1_000  # ids without a reader that are kept
    # After this time the registry is asked again for an id that it did not know.
    failure_s: float = 30.0
    # A registry that does not answer is not asked again in this time: each record would wait for it.
    outage_s: float = 10.0
    timeout_s: float = 3.0  # for each answer
    answer_bytes_max: int = 1_000_000
    references_max: int = 100
    payload_bytes_max: int = 10_000_000
    # A payload of a recursive Avro schema takes a slower reader in Python.
    recursive_bytes_max: int = 100_000


DEFAULT_LIMITS = SchemaLimits()
