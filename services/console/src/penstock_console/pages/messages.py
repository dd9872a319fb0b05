"""Messages: records of a topic from a position on."""

from penstock_console.kafka.records import RecordPage, RecordQuery, read_page
from penstock_console.pages.context import Request, Sources


async def messages(sources: Sources, request: Request, query: RecordQuery) -> RecordPage:
    """Records that the user may read."""
    # Each reader is a client of its own, which ends with the page.
    async with sources.kafka.own_session(request.login) as session:
        return await sources.kafka.in_thread(lambda: read_page(session, query, decoder=sources.decoder))
