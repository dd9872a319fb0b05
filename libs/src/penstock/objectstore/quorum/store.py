"""Three stores as one, for landed segments only: two must answer (ADR 0056).

A put is acknowledged when two stores have the object. The third put goes on without the caller, within limits. So an
acknowledged object is in at least two stores, and any two stores together have all of them.

- A retry of a put with the same bytes is success. An object with other bytes in one store does not hinder the two
  others: it is logged. In two stores it is `AlreadyExists`. Of several puts with different bytes at most one succeeds.
- A read tries the store that was fast lately, and the next one after a failure or a short time. The object is absent
  if two stores lack it, and the third one does not find it in time.
- A listing has the objects of all stores that answer, at least two. So a sweep also finds objects that only one has.
- A delete is done when all three stores have done it. A store that is gone for a minute is left out. The sweep finds
  its objects when it is back.
- Objects are not replaced, and there are no uploads in parts: segments of level 0 need neither.

Nothing copies an object to a store that missed it. Compactors move all of them to the final store within a minute.
"""

import asyncio
import heapq
from collections.abc import Awaitable, Callable, Sequence
from itertools import islice
from typing import TypeVar

from penstock.contracts.codec import Buffer
from penstock.contracts.errors import Conflict, Invalid, PenstockError, Unavailable
from penstock.objectstore.errors import Full, NotDeleted, NotFound
from penstock.objectstore.limits import QuorumLimits
from penstock.objectstore.quorum.member import Member, end, is_answer
from penstock.objectstore.store import (
    LIST_LIMIT_MAX,
    Listing,
    ObjectInfo,
    ObjectStore,
    check_key,
    check_keys,
    check_listing,
    check_range,
    copy_into,
)
from penstock.objectstore.without_parts import WithoutParts

MEMBERS = 3
NEEDED = 2

Result = TypeVar("Result")
Call = Callable[[ObjectStore], Awaitable[Result]]


class QuorumStore(WithoutParts):
    """Three stores with the same objects. The etag of an object is its size, as no object is replaced."""

    has_local_reads = False

    def __init__(self, members: Sequence[Member], limits: QuorumLimits) -> None:
        assert len(members) == MEMBERS, f"{len(members)} stores instead of {MEMBERS}"
        self._members = tuple(members)
        self._limits = limits

    async def open(self) -> None:
        """Open the stores; raises the error of one if two cannot be used. The third one may be opened later."""

        async def is_open(store: ObjectStore) -> bool:
            return True

        await self._answers(is_open)

    async def put(self, key: str, body: Sequence[Buffer], *, if_match: str | None = None) -> str:
        check_key(key)
        if if_match is not None:
            raise Invalid(f"an object in three landing stores is never replaced: {key}")
        size_bytes = sum(map(len, body))
        members = [member for member in self._members if member.has_place(size_bytes)]
        puts = {asyncio.create_task(member.put(key, body)): member for member in members}
        failures: list[PenstockError] = [Unavailable("a landing store is behind")] * (MEMBERS - len(members))
        pending = set(puts)
        is_stored = False
        try:
            while pending and not is_stored and _count_unanswered(failures) < NEEDED:
                done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
                failures += _errors(done)
                is_stored = len(puts) - len(pending) - _count_failed(puts) >= NEEDED
        finally:
            if is_stored:
                for put in pending:
                    puts[put].leave_behind(put, key, size_bytes)
            else:
                await end([*puts])
        if not is_stored:
            raise _decisive(failures)
        return _etag(size_bytes)

    async def get(self, key: str) -> bytes:
        check_key(key)
        return await self._read(lambda store: store.get(key))

    async def get_range(self, key: str, position: int, length: int) -> bytes:
        check_range(key, position, length)
        return await self._read(lambda store: store.get_range(key, position, length))

    async def get_range_into(self, key: str, position: int, buffer: Buffer) -> None:
        """As in every store. The stores do not write to the buffer, because two of them may read at the same time."""
        copy_into(buffer, await self.get_range(key, position, len(buffer)))

    async def get_up_to(self, key: str, position: int, length: int) -> bytes:
        check_range(key, position, length)
        return await self._read(lambda store: store.get_up_to(key, position, length))

    async def list(self, prefix: str, after: str = "", limit: int = LIST_LIMIT_MAX) -> Listing:
        check_listing(prefix, after, limit)
        listings = await self._answers(lambda store: store.list(prefix, after, limit))
        found: dict[str, ObjectInfo] = {}
        for info in heapq.merge(*listings, key=lambda each: each.key):
            found.setdefault(info.key, ObjectInfo(info.key, info.size_bytes, _etag(info.size_bytes), info.modified_ms))
        return [*islice(found.values(), limit)]

    async def delete(self, keys: Sequence[str]) -> None:
        """As in every store, but objects in a store that is gone stay there."""
        check_keys(keys)
        deletes = {asyncio.create_task(member.delete(keys)): member for member in self._members}
        try:
            await self._until_done(deletes)
        finally:
            await end([*deletes])
        in_doubt: dict[str, None] = {}
        rejected: dict[str, None] = {}
        why = ""
        for delete, member in deletes.items():
            error = Unavailable(f"{member.name} is gone") if delete.cancelled() else delete.exception()
            if error is None or member.is_gone:
                continue
            if not isinstance(error, PenstockError):
                raise error
            why = why or str(error)
            in_doubt |= dict.fromkeys(error.keys if isinstance(error, NotDeleted) else keys)
            rejected |= dict.fromkeys(error.rejected if isinstance(error, NotDeleted) else ())
        if in_doubt:
            raise NotDeleted(why, [key for key in keys if key in in_doubt], [key for key in keys if key in rejected])

    async def close(self) -> None:
        """As in every store; puts to a store that is behind are ended after a short time."""
        await asyncio.gather(*(member.close() for member in self._members))

    async def _read(self, work: Call[Result]) -> Result:
        """The first result of a store, in the order of their usual times."""
        waiting = sorted(self._members, key=lambda member: (member.read_s, self._members.index(member)))
        running: set[asyncio.Task[Result]] = set()
        failures: list[PenstockError] = []
        try:
            while True:
                if waiting:
                    running.add(asyncio.create_task(waiting.pop(0).read(work)))
                elif not running:
                    raise _decisive(failures)
                done, running = await asyncio.wait(
                    running, timeout=self._read_wait_s(waiting, failures), return_when=asyncio.FIRST_COMPLETED
                )
                for task in done:
                    if not task.cancelled() and task.exception() is None:
                        return task.result()
                failures += _errors(done)
                if not done and not waiting:
                    raise _decisive(failures)
        finally:
            await end([*running])

    def _read_wait_s(self, waiting: Sequence[Member], failures: Sequence[PenstockError]) -> float | None:
        """The time to wait for running reads. Without more stores it has a limit only if two lack the object."""
        if waiting:
            return self._limits.read_hedge_s
        return self._limits.last_answer_s if _count_absent(failures) >= NEEDED else None

    async def _answers(self, work: Call[Result]) -> Sequence[Result]:
        """The results of two or three stores, in their order; raises an error if two stores fail.

        The third one has a short time after the others, unless it has failed lately.
        """
        calls = {asyncio.create_task(member.call(work)): member for member in self._members}
        pending = set(calls)
        try:
            while len(calls) - len(pending) - _count_failed(calls) < NEEDED:
                failures = _errors(set(calls) - pending)
                if len(failures) > MEMBERS - NEEDED:
                    raise _decisive(failures)
                _, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            late = [call for call in pending if not calls[call].is_failing]
            if late:
                await asyncio.wait(late, timeout=self._limits.last_answer_s)
            return [call.result() for call in calls if call.done() and call.exception() is None]
        finally:
            await end([*calls])

    async def _until_done(self, deletes: "dict[asyncio.Task[None], Member]") -> None:
        """Wait for all deletes; for those of stores that are gone only a short time."""
        present = [delete for delete, member in deletes.items() if not member.is_gone]
        gone = [delete for delete, member in deletes.items() if member.is_gone]
        if present:
            await asyncio.wait(present)
        if gone:
            await asyncio.wait(gone, timeout=self._limits.last_answer_s)


def _etag(size_bytes: int) -> str:
    return str(size_bytes)


def _errors(done: "set[asyncio.Task[Result]]") -> list[PenstockError]:
    """The errors of tasks; raises an error that is not one of a store."""
    found: list[PenstockError] = []
    for task in done:
        error = task.exception()
        if isinstance(error, PenstockError):
            found.append(error)
        elif error is not None:
            raise error
    return found


def _count_failed(tasks: "dict[asyncio.Task[Result], Member]") -> int:
    return sum(task.done() and task.exception() is not None for task in tasks)


def _count_absent(failures: Sequence[PenstockError]) -> int:
    return sum(isinstance(error, NotFound) for error in failures)


def _count_unanswered(failures: Sequence[PenstockError]) -> int:
    return sum(not is_answer(error) for error in failures)


def _decisive(failures: Sequence[PenstockError]) -> PenstockError:
    """The error of the call: an answer that two stores give, else an error that a retry may end.

    A missing object and a rejected call are both `Invalid`, and are not the same answer.
    """
    for kind in (NotFound, Full, Conflict, Invalid, Unavailable):
        of_kind = [each for each in failures if isinstance(each, kind) and not (kind is Invalid and is_answer(each))]
        if len(of_kind) >= NEEDED or (of_kind and kind is Unavailable):
            return of_kind[0]
    return failures[0]
