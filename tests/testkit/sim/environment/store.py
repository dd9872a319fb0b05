"""An object store that is late, fails before or after the effect, throttles requests, or never answers."""

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.contracts.codec import Buffer
from penstock.contracts.errors import Conflict, PenstockError, Unavailable
from penstock.objectstore.errors import NotDeleted, Throttled
from penstock.objectstore.memory import MemoryStore
from penstock.objectstore.store import LIST_LIMIT_MAX, Listing, PartedPut, Unfinished, copy_into
from penstock.segment.keys import is_landing_key
from tests.testkit.sim.environment.wire import START_MS, Latency, Wire

LANDED_COPIES_MIN = 2  # of an acknowledged object, in three landing stores
DELETED_KEYS_SHOWN_MAX = 3  # keys of one call, in the trace

Record = Callable[[str], None]


@dataclass
class StoreFaults:
    """The faults of requests, as shares of all requests."""

    failed_share: float = 0.0  # an error without effect
    unacknowledged_share: float = 0.0  # done, and the answer is an error
    throttled_share: float = 0.0  # 503 SlowDown
    hung_share: float = 0.0  # never answered; half of them are done, perhaps long after all timeouts
    hung_s_max: float = 20.0
    later_share: float = 0.0  # of puts: an error, and the object is stored long after it
    later_s_max: float = 12.0
    listed_late_s: float = 0.0  # lists show new keys so much later


class StoreServer:
    """The objects and the faults, which all handles share."""

    def __init__(self, wire: Wire, record: Record = lambda _: None) -> None:
        self.wire = wire
        self.record = record
        self.faults = StoreFaults()
        self.writes = Latency()  # in addition to the latency of the wire
        self.on_delete: Callable[[str, Sequence[str]], None] = lambda name, keys: None  # the handle's name
        self.happened: Counter[str] = Counter()  # faults of requests
        self.power = 0  # a number that changes when the power is lost
        self._stored_s: dict[str, float] = {}  # by key
        self._unsynced: dict[str, None] = {}  # keys that are stored, and not confirmed to their writers
        self.objects = MemoryStore(now_ms=lambda: START_MS + int(wire.loop.time() * 1000))
        self.landing: Sequence[StoreServer] = ()  # the stores with the landed segments

    def size_of(self, key: str) -> int | None:
        """The current size of an object in any store; None if there is none."""
        return next((len(data) for data in self._copies(key)), None)

    def read(self, key: str) -> bytes | None:
        """The current bytes of an object; None if there is none, or not in two of three landing stores."""
        copies = self._copies(key)
        needed = LANDED_COPIES_MIN if self.landing and is_landing_key(key) else 1
        return next((data for data in copies if copies.count(data) >= needed), None)

    def _copies(self, key: str) -> list[bytes]:
        servers = self.landing if self.landing and is_landing_key(key) else [self]
        found = []
        for server in servers:
            with contextlib.suppress(PenstockError):
                found.append(_done(server.objects.get(key)))
        return found

    def keys(self, prefix: str) -> list[str]:
        """The current keys of all objects below a prefix, in all stores."""
        found: list[str] = []
        while page := _done(self.objects.list(prefix, found[-1] if found else "")):
            found += [listed.key for listed in page]
        return sorted({*found, *(key for server in self.landing for key in server.keys(prefix))})

    def unfinished(self) -> list[str]:
        """The keys of all current uploads that are neither completed nor aborted."""
        return [each.key for each in _done(self.objects.unfinished(""))]

    def add_object(self, key: str, data: bytes) -> None:
        """Store an object at once."""
        _done(self.objects.put(key, [data]))

    def damage(self, key: str, dice: random.Random) -> None:
        """Flip one random bit of an object."""
        data = bytearray(self.read(key) or b"?")
        data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)
        _done(self.objects.delete([key]))
        _done(self.objects.put(key, [data]))

    def stored(self, key: str) -> None:
        """Record when a key was stored first, for late lists, and that it is not confirmed yet."""
        self._stored_s.setdefault(key, self.wire.loop.time())
        self._unsynced[key] = None

    def is_listed(self, key: str, prefix: str) -> bool:
        """Whether a list shows the key now. A list of one key only is a HEAD, which is never late."""
        late_s = self.faults.listed_late_s
        is_hidden = late_s > 0 and key != prefix and self.wire.loop.time() - self._stored_s.get(key, -late_s) < late_s
        self.happened["keys listed late"] += is_hidden
        return not is_hidden

    def answered(self, key: str) -> None:
        """Record that the store has confirmed a key, so it is durable."""
        self._unsynced.pop(key, None)

    @property
    def has_unsynced(self) -> bool:
        """Whether an object is stored, and not confirmed yet."""
        return bool(self._unsynced) or any(server.has_unsynced for server in self.landing)

    def lose_power(self) -> None:
        """Lose all requests on their way, and some of the objects that are stored and not confirmed."""
        self.power += 1
        for key in list(self._unsynced):
            if self.wire.stream.random() < 0.5:
                self.happened["unsynced objects lost"] += 1
                self.record(f"store lost {key} with the power")
                _done(self.objects.delete([key]))
        self._unsynced.clear()
        for server in self.landing:
            server.lose_power()

    def happens(self, share: float) -> bool:
        """Whether a fault with this share happens now, at random."""
        return share > 0 and self.wire.stream.random() < share


class SimStore:
    """`ObjectStore`: the handle of one process."""

    def __init__(self, server: StoreServer, name: str = "store", *, has_local_reads: bool = False) -> None:
        self.has_local_reads = has_local_reads
        self._server = server
        self._name = name

    async def put(self, key: str, body: Sequence[Buffer], *, if_match: str | None = None) -> str:
        data = b"".join(body)
        try:
            etag: str = await self.ask(f"put {key}", lambda: self._put(key, data, if_match))
        except Conflict:
            self._server.answered(key)  # a store syncs an existing name before it reports the conflict
            raise
        self._server.answered(key)
        return etag

    async def _put(self, key: str, data: bytes, if_match: str | None) -> str:
        etag = await self._server.objects.put(key, [data], if_match=if_match)
        if if_match is None:
            self._server.stored(key)
        return etag

    async def get(self, key: str) -> bytes:
        data: bytes = await self.ask(f"get {key}", lambda: self._server.objects.get(key))
        return data

    async def get_range(self, key: str, position: int, length: int) -> bytes:
        what = f"get {key} {position}+{length}"
        data: bytes = await self.ask(what, lambda: self._server.objects.get_range(key, position, length))
        return data

    async def get_range_into(self, key: str, position: int, buffer: Buffer) -> None:
        copy_into(buffer, await self.get_range(key, position, len(buffer)))

    async def get_up_to(self, key: str, position: int, length: int) -> bytes:
        what = f"get up to {key} {position}+{length}"
        data: bytes = await self.ask(what, lambda: self._server.objects.get_up_to(key, position, length))
        return data

    async def list(self, prefix: str, after: str = "", limit: int = LIST_LIMIT_MAX) -> Listing:
        listing: Listing = await self.ask(f"list {prefix}", lambda: self._list(prefix, after, limit))
        return listing

    async def _list(self, prefix: str, after: str, limit: int) -> Listing:
        while page := await self._server.objects.list(prefix, after, limit):
            shown = [each for each in page if self._server.is_listed(each.key, prefix)]
            if shown:
                return shown
            after = page[-1].key
        return []

    async def delete(self, keys: Sequence[str]) -> None:
        await self.ask(f"delete {len(keys)} {' '.join(keys[:DELETED_KEYS_SHOWN_MAX])}", lambda: self._delete(keys))

    async def _delete(self, keys: Sequence[str]) -> None:
        server, left = self._server, list[str]()
        if server.happens(server.faults.failed_share):
            left = [key for key in keys if server.wire.stream.random() < 0.5]
        gone = [key for key in keys if key not in left]
        server.on_delete(self._name, gone)
        await server.objects.delete(gone)
        if left:
            raise NotDeleted("the store failed", left)

    async def begin_parts(self, key: str, part_bytes: int) -> "SimParts":
        inner: PartedPut = await self.ask(f"begin {key}", lambda: self._server.objects.begin_parts(key, part_bytes))
        return SimParts(self, inner, key)

    async def unfinished(self, prefix: str, limit: int = LIST_LIMIT_MAX) -> Sequence[Unfinished]:
        found: Sequence[Unfinished] = await self.ask(
            f"unfinished {prefix}", lambda: self._server.objects.unfinished(prefix, limit)
        )
        return found

    async def abort_unfinished(self, unfinished: Unfinished) -> None:
        await self.ask(f"abort {unfinished.key}", lambda: self._server.objects.abort_unfinished(unfinished))

    async def close(self) -> None:
        """Do nothing: a handle has no resources."""

    async def ask(self, what: str, act: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        """Send one request, and return the answer if one comes."""
        server = self._server
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        # Requests of one process may overtake each other. Others see an object before its writer gets the answer.
        late_s = server.writes.choose_s(server.wire.stream) if what.startswith("put") else 0.0
        sync_s = late_s * server.wire.stream.random()
        delay_s = server.wire.latency.choose_s(server.wire.stream) + late_s - sync_s
        server.wire.later(delay_s, self._arrive, server.power, what, act, answer, sync_s)
        return await answer

    def _arrive(
        self,
        power: int,
        what: str,
        act: Callable[[], Coroutine[Any, Any, Any]],
        answer: asyncio.Future[Any],
        sync_s: float,
    ) -> None:
        server, faults = self._server, self._server.faults
        if power != server.power:
            return
        if server.happens(faults.hung_share):
            server.record(f"store {self._name} {what} hangs")
            if server.wire.stream.random() < 0.5:
                server.wire.later(server.wire.stream.uniform(0, faults.hung_s_max), self._act_unseen, power, act)
            return
        outcome: Any
        if server.happens(faults.throttled_share):
            outcome = Throttled("503 SlowDown")
        elif what.startswith("put") and server.happens(faults.later_share):
            server.happened["puts that land after their error"] += 1
            outcome = Unavailable("the store failed")
            server.wire.later(server.wire.stream.uniform(0, faults.later_s_max), self._act_unseen, power, act)
        elif server.happens(faults.failed_share):
            outcome = Unavailable("the store failed")
        else:
            outcome = _outcome(act)
            if server.happens(faults.unacknowledged_share):
                outcome = Unavailable("the connection to the store broke")
        server.record(f"store {self._name} {what} {type(outcome).__name__}")
        server.wire.later(
            server.wire.latency.choose_s(server.wire.stream) + sync_s, self._settle, power, answer, outcome
        )

    def _settle(self, power: int, answer: asyncio.Future[Any], outcome: Any) -> None:
        if answer.done() or power != self._server.power:
            return
        if isinstance(outcome, Exception):
            answer.set_exception(outcome)
        else:
            answer.set_result(outcome)

    def _act_unseen(self, power: int, act: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        if power == self._server.power:
            _outcome(act)


class SimParts:
    """`PartedPut` with a separate request for every part."""

    def __init__(self, store: SimStore, inner: PartedPut, key: str) -> None:
        self._store = store
        self._inner = inner
        self._key = key

    async def put_part(self, number: int, body: Sequence[Buffer]) -> None:
        data = b"".join(body)
        await self._store.ask(f"put part {number} of {self._key}", lambda: self._inner.put_part(number, [data]))

    async def complete(self) -> str:
        etag: str = await self._store.ask(f"complete {self._key}", lambda: self._inner.complete())
        return etag

    async def abort(self) -> None:
        await self._store.ask(f"abort {self._key}", lambda: self._inner.abort())


def _outcome(act: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    try:
        return _done(act())
    except PenstockError as error:
        return error


def _done(work: Coroutine[Any, Any, Any]) -> Any:
    """The result of a coroutine that never waits."""
    try:
        work.send(None)
    except StopIteration as stop:
        return stop.value
    raise AssertionError("the store in memory does not wait")
