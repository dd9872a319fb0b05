"""Decodes requests within a budget of memory: a frame of 750 KB may become 100 MB of objects.

A request with few elements is decoded at once. A larger one first reserves memory for its elements, and waits in a
queue if others hold too much. The decoder finds a large count before it makes the elements, so it begins with a small
limit. A thread decodes large requests, one at a time, so that the event loop serves other clients meanwhile.

A large request must be answered in time. Otherwise one with a query for each element would hold the memory for minutes.
All later large requests would wait, with their connections.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from penstock.kafkawire.api import decode_request
from penstock.kafkawire.errors import TooManyElements
from penstock.kafkawire.frame import RequestHeader
from penstock.kafkawire.source import Message
from penstock.runtime.concurrency.byte_budget import ByteBudget
from penstock.runtime.concurrency.ending import to_the_end
from penstock_gateway.kafka.error_mapping import CloseConnection
from penstock_gateway.server.limits import DecodingLimits


class RequestDecoder:
    """The memory of the large requests of all connections, from before they are decoded until they are answered."""

    def __init__(self, limits: DecodingLimits) -> None:
        self._limits = limits
        self._budget = ByteBudget(limits.reserved_bytes_max)
        self._thread_turn = asyncio.Lock()
        self.granted_bytes = 0  # all reservations so far

    @property
    def reserved_bytes(self) -> int:
        """The reservations of all requests."""
        return self._budget.used_bytes

    async def decode(
        self, held: AsyncExitStack, header: RequestHeader, frame: memoryview, position: int
    ) -> tuple[Message, bool]:
        """The request, and whether it has a reservation, which `held` gives back.

        Raises only `DecodeError`, and `CloseConnection` for a large request that waits too long. `held` raises
        `CloseConnection`, too, if such a request is not answered in time.
        """
        few, *steps = self._limits.elements_steps
        try:
            return decode_request(header.api_key, header.api_version, frame, position, few), False
        except TooManyElements:
            if not steps:
                raise
        await held.enter_async_context(self._time_limit())
        for elements_max in steps:
            async with AsyncExitStack() as attempt:
                size_bytes = elements_max * self._limits.element_bytes
                await attempt.enter_async_context(self._budget.hold(size_bytes))
                self.granted_bytes += size_bytes
                try:
                    async with self._thread_turn:
                        arguments = header.api_key, header.api_version, frame, position, elements_max
                        request = await to_the_end(asyncio.to_thread(decode_request, *arguments))
                except TooManyElements:
                    if elements_max == steps[-1]:
                        raise
                    continue
                held.push_async_exit(attempt.pop_all())
                return request, True
        raise AssertionError("the last step returns or raises")

    @asynccontextmanager
    async def _time_limit(self) -> AsyncIterator[None]:
        """Cancel a block that takes longer than a large request may."""
        seconds_max = self._limits.large_request_s_max
        try:
            async with asyncio.timeout(seconds_max) as limit:
                yield
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise CloseConnection(f"a request with many elements took more than {seconds_max:g} s") from error
