"""JetStream's answers about streams in JSON, as far as a journal needs them, and checks of these answers."""

from typing import TypeVar

import msgspec

from penstock.contracts.errors import Corrupt

DUPLICATE_WINDOW_S = 120  # an append may be retried for this long

STREAM_NOT_FOUND = 10059
STREAM_NAME_TAKEN = 10058
OTHER_STREAM_EXPECTED = 10060
MESSAGE_NOT_FOUND = 10037
REPLICAS_NEED_A_CLUSTER = 10074
WRONG_LAST_SEQUENCE = (10071, 10164)  # the second one is of newer servers
NO_ROOM = (10047, 10023, 10054)  # no storage, no resources; a message is too large

Reply = TypeVar("Reply")


class ApiError(msgspec.Struct, frozen=True):
    """The reason why JetStream rejected a request; `err_code` is JetStream's own error number."""

    err_code: int = 0
    description: str = ""


class StreamConfig(msgspec.Struct, frozen=True):
    """The settings that decide whether a stream keeps what it acknowledged."""

    name: str
    subjects: list[str]
    num_replicas: int = 1
    retention: str = "limits"
    storage: str = "file"
    discard: str = "new"
    max_msgs: int = -1
    max_bytes: int = -1
    max_age: int = 0  # nanoseconds; 0: no limit
    max_msgs_per_subject: int = -1
    deny_delete: bool = True
    duplicate_window: int = DUPLICATE_WINDOW_S * 1_000_000_000


class StreamState(msgspec.Struct, frozen=True):
    """The first and last entries of the stream."""

    messages: int
    first_seq: int
    last_seq: int


class StreamPeer(msgspec.Struct, frozen=True):
    """Another server that holds the stream: nanoseconds since its last message, 0 if there was none."""

    active: int = 0


class StreamCluster(msgspec.Struct, frozen=True):
    """The stream's leader, as the answering server sees it; empty if it knows none."""

    leader: str = ""
    replicas: list[StreamPeer] = []


class StreamReply(msgspec.Struct, frozen=True):
    """The answer to a request for the stream's state; a single server names no cluster."""

    error: ApiError | None = None
    created: str = ""
    config: StreamConfig | None = None
    state: StreamState | None = None
    cluster: StreamCluster | None = None


class AppendReply(msgspec.Struct, frozen=True):
    """The answer to an append; for a duplicate, `seq` is the sequence of the first append."""

    error: ApiError | None = None
    seq: int = 0


class ConsumerReply(msgspec.Struct, frozen=True):
    """The answer to the creation of a consumer, to a request for one message, or to a purge."""

    error: ApiError | None = None
    name: str = ""


def leads(cluster: StreamCluster, replicas: int, heard_within_s: float) -> bool:
    """Whether the leader was certainly the only leader when it answered.

    A leader that was paused, or cut off from the other servers, reports for many seconds that it leads. It does not
    know the entries stored in that time. So it must have heard from most servers within `heard_within_s`.
    """
    heard = sum(0 < peer.active < heard_within_s * 1_000_000_000 for peer in cluster.replicas)
    return 2 * (1 + heard) > replicas


def is_error(error: ApiError | None, code: int) -> bool:
    """Whether it is the error with this code."""
    return error is not None and error.err_code == code


def decode_reply(data: bytes, kind: type[Reply]) -> Reply:
    """The answer in these bytes; `Corrupt` if they are not such an answer."""
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise Corrupt(f"jetstream's answer is no {kind.__name__}: {error}") from error
