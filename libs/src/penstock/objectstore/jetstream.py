"""Small objects as messages of a JetStream stream: a store with PUTs of about a millisecond, for express segments.

An object is the only message of its subject, and its etag is the message's sequence. JetStream stores a message with an
expected last sequence of its subject only if that is right. So a put creates or replaces, and never overwrites. Reads
are direct gets, which any replica of the stream answers: an object that was just put may be absent at another one. So
an absent object is looked for again at the stream's leader.

The stream rejects new messages above its limit of bytes (`Full`). It exists on servers that sync before they
acknowledge, as the journal's does. JetStream's interface is requests in JSON.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import TypeVar
from urllib.parse import unquote, urlsplit

import msgspec

from penstock.contracts.codec import Buffer
from penstock.contracts.errors import Invalid, PenstockError, Unavailable, Undelivered
from penstock.contracts.ids import check_token
from penstock.contracts.subjects import landing_objects, landing_stream
from penstock.objectstore.errors import AlreadyExists, EtagMismatch, Full, NotDeleted, NotFound
from penstock.objectstore.limits import JetStreamLimits
from penstock.objectstore.store import (
    LIST_LIMIT_MAX,
    Listing,
    ObjectInfo,
    check_key,
    check_keys,
    check_listing,
)
from penstock.objectstore.whole_reads import WholeReads
from penstock.objectstore.without_parts import WithoutParts
from penstock.runtime.clock import Entropy
from penstock.runtime.nats.client import NatsConnection, connect_nats
from penstock.runtime.nats.stream import (
    MESSAGE_NOT_FOUND,
    NO_ROOM,
    STREAM_NAME_TAKEN,
    STREAM_NOT_FOUND,
    WRONG_LAST_SEQUENCE,
    ApiError,
    decode_reply,
    is_error,
)
from penstock.runtime.nats.tail import RawMessage
from penstock.runtime.nats.tls import NatsTls

OPTIONS = ("user", "password", "tls", "tls_ca", "tls_certificate", "tls_key", "replicas", "bytes_max")
FIT = ("subjects", "retention", "storage", "discard", "max_msgs_per_subject", "allow_direct")
REPLICAS = 3  # on servers of a cluster
NOT_STORED = 10077  # for any reason, also because the stream is full
FULL_STREAM = "maximum bytes exceeded"

Reply = TypeVar("Reply")


class _Config(msgspec.Struct, frozen=True):
    """The settings of the stream; those from `retention` on decide whether it is a landing store at all."""

    name: str
    subjects: list[str]
    max_bytes: int
    num_replicas: int
    retention: str = "limits"
    storage: str = "file"
    discard: str = "new"
    max_msgs_per_subject: int = 1
    allow_direct: bool = True
    duplicate_window: int = 1_000_000_000


class _Stored(msgspec.Struct, frozen=True):
    error: ApiError | None = None
    seq: int = 0


class _State(msgspec.Struct, frozen=True):
    subjects: dict[str, int] = {}


class _Info(msgspec.Struct, frozen=True):
    """The answer to a request for the stream's state, with some of its subjects."""

    error: ApiError | None = None
    config: _Config | None = None
    state: _State = _State()
    total: int = 0  # the number of subjects on all pages of the answer


class _Message(msgspec.Struct, frozen=True):
    data: bytes = b""  # base 64 in the JSON


class _MessageReply(msgspec.Struct, frozen=True):
    error: ApiError | None = None
    message: _Message | None = None


class _Done(msgspec.Struct, frozen=True):
    error: ApiError | None = None


class _Consumer(msgspec.Struct, frozen=True):
    error: ApiError | None = None
    name: str = ""
    num_pending: int = 0


async def open_jetstream_store(
    address: str, options: Mapping[str, str], *, entropy: Entropy, limits: JetStreamLimits
) -> "JetStreamStore":
    """The store at jetstream://host:port,host:port/name; its stream is made if it is absent.

    Raises `Invalid` or `Unavailable` with one clear sentence if it cannot be used.
    """
    parts = urlsplit(address)
    wrong = sorted(set(options) - set(OPTIONS))
    if wrong:
        raise Invalid(f"no jetstream option {wrong[0]!r}; there are {', '.join(OPTIONS)}")
    name = check_token("the name of a landing store", unquote(parts.path).strip("/"))
    tls = NatsTls(options.get("tls_ca", ""), options.get("tls_certificate", ""), options.get("tls_key", ""))
    scheme = "tls" if tls.is_given or options.get("tls") == "on" else "nats"
    connection = await connect_nats(
        ",".join(f"{scheme}://{server}" for server in parts.netloc.split(",")),
        name=landing_stream(name),
        user=options.get("user", ""),
        password=options.get("password", ""),
        tls=tls,
        entropy=entropy,
    )
    try:
        config = _Config(
            name=landing_stream(name),
            subjects=[landing_objects(name)],
            max_bytes=_whole_number(options, "bytes_max", limits.bytes_max),
            num_replicas=_whole_number(options, "replicas", REPLICAS if connection.messages.is_clustered else 1),
        )
        store = JetStreamStore(connection, name, limits)
        await store.create(config)
    except BaseException:
        await connection.close()
        raise
    return store


def _whole_number(options: Mapping[str, str], name: str, default: int) -> int:
    text = options.get(name, str(default))
    if not text.isdecimal() or int(text) < 1:
        raise Invalid(f"the jetstream option {name} must be a whole number above 0: {text!r}")
    return int(text)


class JetStreamStore(WholeReads, WithoutParts):
    """A store over one connection to NATS, which it owns."""

    has_local_reads = False

    def __init__(self, connection: NatsConnection, name: str, limits: JetStreamLimits) -> None:
        self._connection = connection
        self._messages = connection.messages
        self._stream = landing_stream(name)
        self._root = landing_objects(name).removesuffix(">")
        self._limits = limits

    async def create(self, config: _Config) -> None:
        """Create the stream unless it exists; `Invalid` if it exists and is no landing store.

        A stream that exists keeps its replicas and its bound.
        """
        reply = await self._ask(f"STREAM.INFO.{self._stream}", b"", _Info)
        if is_error(reply.error, STREAM_NOT_FOUND):
            request = msgspec.json.encode(config)
            reply = await self._ask(f"STREAM.CREATE.{self._stream}", request, _Info, self._limits.create_timeout_s)
        if reply.error is not None and not is_error(reply.error, STREAM_NAME_TAKEN):
            raise Unavailable(f"the landing store {self._stream} cannot be used: {reply.error.description}")
        if reply.config is not None:
            for name in FIT:
                found, wanted = getattr(reply.config, name), getattr(config, name)
                if found != wanted:
                    what = f"its {name} is {found!r} instead of {wanted!r}"
                    raise Invalid(f"the stream {self._stream} is no landing store: {what}")

    async def put(self, key: str, body: Sequence[Buffer], *, if_match: str | None = None) -> str:
        subject = self._subject(check_key(key))
        data = b"".join(body)
        if len(data) + self._limits.header_bytes_max > self._messages.message_bytes_max:
            raise Full(f"an object of {len(data)} bytes is too large for the landing store: {key}")
        expected = "0" if if_match is None else if_match
        if not expected.isdecimal() or (if_match is not None and expected == "0"):
            raise EtagMismatch(f"no version of {key} has the etag {if_match}")
        headers = {"Nats-Expected-Stream": self._stream, "Nats-Expected-Last-Subject-Sequence": expected}
        try:
            answer = await self._messages.exchange(subject, data, self._limits.put_timeout_s, headers)
        except Undelivered as error:
            raise Unavailable(f"no server has the stream {self._stream}") from error
        reply = decode_reply(answer.data, _Stored)
        if reply.error is not None:
            raise _put_error(reply.error, key, if_match)
        return str(reply.seq)

    async def get(self, key: str) -> bytes:
        subject = self._subject(check_key(key))
        message = await self._direct(subject)
        if message is None:
            message = await self._of_leader(subject)
        if message is None:
            raise NotFound(f"no object: {key}")
        return message

    async def list(self, prefix: str, after: str = "", limit: int = LIST_LIMIT_MAX) -> Listing:
        check_listing(prefix, after, limit)
        folder = prefix[: prefix.rfind("/") + 1]
        names = await self._subjects(f"{self._subject(folder)}>")
        keys = sorted(key for key in map(self._key, names) if key.startswith(prefix) and key > after)
        found: Listing = []
        while keys and len(found) < limit:  # some may be deleted meanwhile
            page, keys = keys[: limit - len(found)], keys[limit - len(found) :]
            found += await self._described(page)
        return found

    async def delete(self, keys: Sequence[str]) -> None:
        check_keys(keys)
        failed: dict[str, str] = {}
        waiting = iter(dict.fromkeys(keys))

        async def work() -> None:
            for key in waiting:
                try:
                    await self._purge(key)
                except Unavailable as error:
                    failed[key] = str(error)

        await asyncio.gather(*(work() for _ in range(min(len(keys), self._limits.deletes_parallel_max))))
        if failed:
            raise NotDeleted(next(iter(failed.values())), list(failed))

    async def close(self) -> None:
        await self._connection.close()

    def _subject(self, key: str) -> str:
        return self._root + key.replace(".", "%").replace("/", ".")

    def _key(self, subject: str) -> str:
        return subject[len(self._root) :].replace(".", "/").replace("%", ".")

    async def _direct(self, subject: str) -> bytes | None:
        """The newest message of the subject at some replica; None if that has none, or if no replica answers."""
        try:
            answer = await self._exchange(f"$JS.API.DIRECT.GET.{self._stream}.{subject}", b"")
        except Undelivered:
            return None
        headers = answer.headers or {}
        return None if "Nats-Sequence" not in headers else answer.data

    async def _of_leader(self, subject: str) -> bytes | None:
        """The newest message of the subject at the stream's leader; None if it has none."""
        request = msgspec.json.encode({"last_by_subj": subject})
        reply = await self._ask(f"STREAM.MSG.GET.{self._stream}", request, _MessageReply)
        if reply.error is not None and not is_error(reply.error, MESSAGE_NOT_FOUND):
            raise Unavailable(f"no message of {self._stream}: {reply.error.description}")
        return reply.message.data if reply.message is not None else None

    async def _subjects(self, pattern: str) -> Sequence[str]:
        """The subjects of all messages that match."""
        found: dict[str, int] = {}
        while True:
            request = msgspec.json.encode({"subjects_filter": pattern, "offset": len(found)})
            reply = await self._ask(f"STREAM.INFO.{self._stream}", request, _Info, self._limits.list_timeout_s)
            if reply.error is not None:
                raise Unavailable(f"the stream {self._stream} cannot be listed: {reply.error.description}")
            before = len(found)
            found |= reply.state.subjects
            if len(found) in (before, reply.total) or not reply.total:
                return [*found]

    async def _described(self, keys: Sequence[str]) -> Listing:
        """Sizes, etags and times of these objects, without those that are deleted meanwhile."""
        inbox = self._messages.new_inbox()
        found: dict[str, ObjectInfo] = {}
        arrived = asyncio.Event()
        count = pending = 0

        def take(message: RawMessage) -> None:
            nonlocal count, pending
            count += 1
            headers = message.headers or {}
            # $JS.ACK.<stream>.<consumer>.<deliveries>.<stream sequence>.<consumer sequence>.<nanoseconds>.<pending>,
            # after JetStream's own order of fields; newer servers add two fields before the stream.
            sequence, _, nanoseconds, left = message.reply.split(".")[-4:]
            pending = int(left)
            key = self._key(message.subject)
            found[key] = ObjectInfo(key, int(headers["Nats-Msg-Size"]), sequence, int(nanoseconds) // 1_000_000)
            arrived.set()

        end = await self._messages.listen(inbox, take)
        try:
            config = {
                "deliver_subject": inbox,
                "deliver_policy": "last_per_subject",
                "ack_policy": "none",
                "max_deliver": 1,
                "headers_only": True,
                "filter_subjects": [self._subject(key) for key in keys],
                "mem_storage": True,
                "num_replicas": 1,
                "inactive_threshold": round(self._limits.list_timeout_s * 1e9),
            }
            request = msgspec.json.encode({"stream_name": self._stream, "config": config})
            reply = await self._ask(f"CONSUMER.CREATE.{self._stream}", request, _Consumer, self._limits.list_timeout_s)
            if reply.error is not None:
                raise Unavailable(f"the stream {self._stream} cannot be listed: {reply.error.description}")
            async with asyncio.timeout(self._limits.list_timeout_s):
                # Fewer come if some are deleted meanwhile; the last one has the number 0.
                while count < reply.num_pending and (pending or not count):
                    arrived.clear()
                    await arrived.wait()
        except TimeoutError as error:
            raise Unavailable(f"the stream {self._stream} was not listed in time") from error
        finally:
            await end()
        await self._messages.publish(f"$JS.API.CONSUMER.DELETE.{self._stream}.{reply.name}", b"")
        return [found[key] for key in keys if key in found]

    async def _purge(self, key: str) -> None:
        request = msgspec.json.encode({"filter": self._subject(check_key(key))})
        reply = await self._ask(f"STREAM.PURGE.{self._stream}", request, _Done)
        if reply.error is not None:
            raise Unavailable(f"{key} was not deleted from {self._stream}: {reply.error.description}")

    async def _ask(self, verb: str, data: bytes, kind: type[Reply], timeout_s: float | None = None) -> Reply:
        try:
            answer = await self._exchange(f"$JS.API.{verb}", data, timeout_s)
        except Undelivered as error:
            raise Unavailable("jetstream does not answer; is it enabled on the nats server?") from error
        return decode_reply(answer.data, kind)

    async def _exchange(self, subject: str, data: bytes, timeout_s: float | None = None) -> RawMessage:
        timeout_s = self._limits.ask_timeout_s if timeout_s is None else timeout_s
        return await self._messages.exchange(subject, data, timeout_s)


def _put_error(error: ApiError, key: str, if_match: str | None) -> PenstockError:
    if error.err_code in WRONG_LAST_SEQUENCE:
        if if_match is None:
            return AlreadyExists(f"object exists: {key}")
        return EtagMismatch(f"no version {if_match} of {key}: {error.description}")
    if error.err_code in NO_ROOM or (error.err_code == NOT_STORED and FULL_STREAM in error.description):
        return Full(f"the landing store is full: {error.description}")
    return Unavailable(f"{key} was not stored: {error.description}")
