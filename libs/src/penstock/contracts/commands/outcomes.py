"""Outcomes that are common to commands of several domains."""

import msgspec

from penstock.contracts.rejections import Rejection


class Done(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """Accepted, without further results."""


class Rejected(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """Rejected as a whole: nothing changed."""

    rejection: Rejection
    message: str = ""


class PerItem(msgspec.Struct, frozen=True, array_like=True, tag=10):
    """One rejection or NONE per item of the command, in its order: committed offsets, leaving members, ..."""

    rejections: list[Rejection]
