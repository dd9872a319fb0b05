"""Outcomes that commands of several domains share."""

import msgspec

from penstock.contracts.rejections import Rejection


class Done(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """Accepted, with nothing more to say."""


class Rejected(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """Refused, and nothing changed."""

    rejection: Rejection
    message: str = ""


class PerItem(msgspec.Struct, frozen=True, array_like=True, tag=10):
    """One refusal (or NONE) per item of the command, in its order: offsets to commit, members that leave."""

    rejections: list[Rejection]
