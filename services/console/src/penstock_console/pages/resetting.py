"""The preview of a group's reset: the offsets before and after."""

import msgspec

from penstock_console.kafka.changes import OffsetMove, preview_reset
from penstock_console.pages.context import Request, Sources


class ResetQuery(msgspec.Struct, frozen=True, kw_only=True):
    """The new position, as on the command line, in one topic or partition, or in all that the group has."""

    to: str = "latest"
    topic: str = ""


class ResetPreview(msgspec.Struct, frozen=True):
    """The offsets that a reset would set."""

    group: str
    to: str
    topic: str
    moves: list[OffsetMove]


async def reset_preview(sources: Sources, request: Request, name: str, query: ResetQuery) -> ResetPreview:
    """The offsets that the reset would set; nothing is changed."""
    topics = [query.topic] if query.topic else []
    moves = await sources.kafka.call(request.login, lambda session: preview_reset(session, name, query.to, topics))
    return ResetPreview(name, query.to, query.topic, moves)
