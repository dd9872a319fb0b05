"""Errors of the codec: one for bytes that are not a valid message, one for values that have no encoding."""


class DecodeError(ValueError):
    """The bytes are not a valid message; decoding raises no other error, for any bytes."""


class TooManyElements(DecodeError):
    """The arrays of the message together have more elements than the caller allows."""


class UnsupportedVersion(DecodeError):
    """Penstock does not serve this API in this version."""


class EncodeError(ValueError):
    """This value cannot be written in this version: a number out of range, or null where Kafka allows none."""


class OversizeError(DecodeError):
    """Compressed bytes have more plain bytes than allowed."""
