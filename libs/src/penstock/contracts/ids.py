"""Identifiers: segment ids with their creation time, topic ids, and names of clusters, zones, pools and instances."""

import base64
import re

from penstock.contracts.errors import Invalid

# 16 bytes as a ULID: a 48-bit creation time in milliseconds since 1970, big endian, then 80 random bits.
# So ids sort by creation time, and the id of a segment gives its age (docs/design.md, section 3).
SegmentId = bytes
# 16 bytes, a version-4 UUID as Kafka uses it (KIP-516); all zeros is "no topic id".
TopicId = bytes

ID_BYTES = 16
ENTROPY_BYTES = 10
# The end of the id of a landed segment, which a flusher put into the landing store (ADR 0045, 0056). The time and 40
# random bits are left. No other new id ends so; of the ids of earlier releases, one of 2**40 does.
LANDED_END = b"\xc5\x9a\x03\x7f\xe1"
NO_TOPIC_ID: TopicId = bytes(ID_BYTES)

# The pool of processes without the setting, and of processes of earlier releases (ADR 0060).
DEFAULT_POOL = "default"

# Only gateways create this topic and write to it (ADR 0037).
AUDIT_TOPIC = "__penstock_audit"

_CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_CROCKFORD_VALUES = {letter: value for value, letter in enumerate(_CROCKFORD)}
_CROCKFORD_PAIRS = [first + second for first in _CROCKFORD for second in _CROCKFORD]
ULID_TEXT_LENGTH = 26

# One NATS subject token: no dots, wildcards or blanks; short, because it is in every subject and log line.
_TOKEN = re.compile(r"[A-Za-z0-9_-]{1,64}")
_TOPIC_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")


def new_segment_id(now_ms: int, entropy: bytes) -> SegmentId:
    """A new segment id from a time in milliseconds since 1970 and 10 random bytes."""
    assert len(entropy) == ENTROPY_BYTES, f"entropy is {len(entropy)} bytes, not {ENTROPY_BYTES}"
    if entropy.endswith(LANDED_END):
        entropy = entropy[:-1] + bytes((LANDED_END[-1] ^ 1,))
    return now_ms.to_bytes(6, "big") + entropy


def new_landed_id(now_ms: int, entropy: bytes) -> SegmentId:
    """As `new_segment_id`, for a segment in the landing store; half of the random bytes are used."""
    assert len(entropy) == ENTROPY_BYTES, f"entropy is {len(entropy)} bytes, not {ENTROPY_BYTES}"
    return now_ms.to_bytes(6, "big") + entropy[: -len(LANDED_END)] + LANDED_END


def is_landed(segment_id: SegmentId) -> bool:
    """Whether the flusher put the segment into the landing store."""
    return segment_id.endswith(LANDED_END)


def segment_born_ms(segment_id: SegmentId) -> int:
    """The creation time in a segment id, in milliseconds since 1970."""
    return int.from_bytes(segment_id[:6], "big")


def ulid_text(identifier: bytes) -> str:
    """The 26-letter Crockford base-32 text of a 16-byte ULID."""
    value = int.from_bytes(identifier, "big")
    return "".join([_CROCKFORD_PAIRS[(value >> shift) & 1023] for shift in range(120, -1, -10)])


def parse_ulid(text: str) -> bytes:
    """The 16 bytes of a ULID's 26-letter text; `Invalid` for any other text."""
    if len(text) != ULID_TEXT_LENGTH or text[0] > "7" or not all(c in _CROCKFORD_VALUES for c in text):
        raise Invalid(f"not a ulid: {text!r}")
    value = 0
    for letter in text:
        value = value << 5 | _CROCKFORD_VALUES[letter]
    return value.to_bytes(ID_BYTES, "big")


def new_topic_id(entropy: bytes) -> TopicId:
    """A version-4 UUID made of 16 random bytes; never one of Kafka's two reserved ids."""
    assert len(entropy) == ID_BYTES, f"entropy is {len(entropy)} bytes, not {ID_BYTES}"
    raw = bytearray(entropy)
    raw[6] = raw[6] & 0x0F | 0x40
    raw[8] = raw[8] & 0x3F | 0x80
    return bytes(raw)


def topic_id_text(topic_id: TopicId) -> str:
    """Kafka's own text of a topic id: 22 letters of URL-safe base 64."""
    return base64.urlsafe_b64encode(topic_id).decode().rstrip("=")


def check_token(kind: str, text: str) -> str:
    """`text` if it can be a token of a subject and part of an object key; else `Invalid`, naming `kind`."""
    if not _TOKEN.fullmatch(text):
        raise Invalid(f"{kind} must be 1 to 64 letters, digits, '_' or '-': {text!r}")
    return text


def is_internal_topic(name: str | None) -> bool:
    """Whether clients can neither create the topic, nor write to it, nor delete it or its records."""
    return name == AUDIT_TOPIC


def is_legal_topic_name(name: str) -> bool:
    """Whether Kafka allows the topic name: 1 to 249 letters, digits, '.', '_', '-', and not '.' or '..'."""
    return _TOPIC_NAME.fullmatch(name) is not None and name not in {".", ".."}
