"""What the codec raises: one error for bytes that are not what they should be, one for values that have no bytes."""


class DecodeError(ValueError):
    """These bytes are not what they claim to be; the only error that decoding raises, whatever the bytes."""


class UnsupportedVersion(DecodeError):
    """Penstock does not serve this API in this version."""


class EncodeError(ValueError):
    """This value cannot be written in this version: a number out of range, or null where Kafka allows none."""
