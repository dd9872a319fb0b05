"""What an audit finds wrong."""

import msgspec


class Finding(msgspec.Struct, frozen=True, order=True):
    """One thing that is not as it has to be."""

    kind: str  # a few words with dashes, for programs
    subject: str  # an object's key, or topic-partition
    what: str  # one sentence's part for people
