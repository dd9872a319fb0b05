"""Finds how far the journal reaches: a replica applies that much before it answers a query for fresh data.

One request to the journal serves all callers that came before it was sent. A caller that comes later shares the next
request: the current answer may be older than data that the caller has seen.
"""

import asyncio

from penstock.contracts.errors import Unavailable
from penstock.runtime.journal import Journal, JournalLost


class _Request:
    """One request to the journal that several callers share."""

    def __init__(self) -> None:
        self.sequence: int | None = None


class ReadIndex:
    """Asks the journal for its last sequence, one request at a time, for any number of callers."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._asking = asyncio.Lock()
        self._gathering: _Request | None = None

    async def ask(self, timeout_s: float) -> int:
        """A sequence at least as high as that of every entry that is stored when this is called.

        `Unavailable` if the journal does not answer in time.
        """
        request = self._gathering
        if request is None:
            request = self._gathering = _Request()
        try:
            async with asyncio.timeout(timeout_s), self._asking:
                # If the caller that should send it gave up, the next caller in the queue sends it.
                return await self._send(request) if request.sequence is None else request.sequence
        except TimeoutError as error:
            raise Unavailable(f"the journal did not report its end within {timeout_s:g} s") from error

    async def _send(self, request: _Request) -> int:
        if self._gathering is request:
            self._gathering = None
        try:
            request.sequence = await self._journal.last_sequence()
        except JournalLost as error:  # the replica's own tail gets the same error, and halts
            raise Unavailable(str(error)) from error
        return request.sequence
