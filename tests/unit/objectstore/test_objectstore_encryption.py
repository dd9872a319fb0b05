"""Encrypted objects: any range is the plain one, any changed byte is an error, and keys come from a file or command."""

import base64
import os
import random
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from penstock.contracts.codec import Buffer
from penstock.contracts.errors import Corrupt, Invalid, PenstockError, Unavailable
from penstock.objectstore import NotFound, open_store, streamed_put
from penstock.objectstore.encryption import (
    EncryptedStore,
    Keys,
    KeyUse,
    Plain,
    keys_in_use,
    parse_keys,
    read_keys,
)
from penstock.objectstore.encryption.chunks import ADDED_BYTES, CHUNK_BYTES, HEAD_BYTES, STORED_BYTES
from penstock.objectstore.memory import MemoryParts, MemoryStore
from penstock.objectstore.retrying import RetryingStore
from penstock.objectstore.store import PART_BYTES_MIN
from penstock.runtime.clock import SystemEntropy

PLANTED = b"a value that must not be readable"
SIZES = [0, 1, CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1, 3 * CHUNK_BYTES, 3 * CHUNK_BYTES + 777]


def line(name: str, seed: int) -> str:
    return f"{name} {base64.b64encode(random.Random(seed).randbytes(32)).decode()}\n"


FIRST, SECOND = line("first", 1), line("second", 2)


def keys(*lines: str) -> Keys:
    return parse_keys("".join(lines), "a test")


def encrypted(inner: MemoryStore, *lines: str, plain: Plain = Plain.REJECT) -> EncryptedStore:
    return EncryptedStore(inner, keys(*(lines or (FIRST,))), SystemEntropy(), plain=plain)


async def replace(inner: MemoryStore, key: str, data: bytes) -> None:
    await inner.delete([key])
    await inner.put(key, [data])


@settings(max_examples=60, deadline=None)
@given(data=st.data(), size=st.sampled_from(SIZES))
async def test_any_range_is_that_of_the_plain_object(data: st.DataObject, size: int) -> None:
    plain = random.Random(size).randbytes(size)
    store = encrypted(MemoryStore())
    await store.put("a", [plain[: size // 3], plain[size // 3 :]])
    assert await store.get("a") == plain
    [listed] = await store.list("")
    assert listed.size_bytes == size
    position = data.draw(st.integers(0, size + 10))
    length = data.draw(st.integers(1, size + 10))
    if position + length <= size:
        assert await store.get_range("a", position, length) == plain[position : position + length]
    else:
        with pytest.raises(Invalid):
            await store.get_range("a", position, length)


async def test_a_range_as_long_as_the_object_that_begins_later_is_not_the_whole_object() -> None:
    plain = random.Random(1).randbytes(1_000)
    store = encrypted(MemoryStore())
    await store.put("a", [plain])
    assert await store.get_up_to("a", 1, 1_000) == plain[1:]
    with pytest.raises(Invalid):
        await store.get_range("a", 1, 1_000)


@settings(max_examples=150, deadline=None)
@given(data=st.data(), size=st.sampled_from(SIZES))
async def test_any_changed_bit_is_an_error(data: st.DataObject, size: int) -> None:
    inner = MemoryStore()
    store = encrypted(inner)
    await store.put("a", [bytes(size)])
    stored = bytearray(await inner.get("a"))
    chunk = data.draw(st.integers(0, (len(stored) - 1) // STORED_BYTES))
    inside = st.one_of(st.integers(0, HEAD_BYTES), st.integers(0, STORED_BYTES - 1))
    changed = min(chunk * STORED_BYTES + data.draw(inside), len(stored) - 1)
    stored[changed] ^= 1 << data.draw(st.integers(0, 7))
    await replace(inner, "a", bytes(stored))
    with pytest.raises(PenstockError) as raised:
        await store.get("a")
    assert not isinstance(raised.value, NotFound)
    assert isinstance(raised.value, Corrupt | Invalid)
    if size:
        position = min(changed // STORED_BYTES * CHUNK_BYTES, size - 1)
        with pytest.raises(PenstockError):
            await store.get_range("a", position, 1)


@pytest.mark.parametrize("size", SIZES[1:])
async def test_a_cut_object_is_an_error(size: int) -> None:
    inner = MemoryStore()
    store = encrypted(inner)
    await store.put("a", [bytes(size)])
    stored = await inner.get("a")
    ends = {0, 1, ADDED_BYTES, len(stored) - 1, *range(STORED_BYTES, len(stored), STORED_BYTES)}
    for end in sorted(ends):
        await replace(inner, "a", stored[:end])
        with pytest.raises(PenstockError) as raised:
            await store.get("a")
        assert isinstance(raised.value, Corrupt) or end < 3, raised.value
        with pytest.raises(PenstockError):
            await store.get_range("a", 0, size)


async def test_chunks_cannot_change_their_place_or_their_object() -> None:
    inner = MemoryStore()
    store = encrypted(inner)
    for key in ("a", "b"):
        await store.put(key, [bytes(3 * CHUNK_BYTES)])
    stored, other = await inner.get("a"), await inner.get("b")
    first, second, third = (stored[start : start + STORED_BYTES] for start in range(0, len(stored), STORED_BYTES))
    changed: list[bytes] = [second + first + third, first + first + third, first + third, other, third, stored + third]
    for data in (*changed, other[:STORED_BYTES] + second + third):
        await replace(inner, "a", data)
        with pytest.raises(Corrupt, match="object a "):
            await store.get("a")
    await replace(inner, "a", first + other[STORED_BYTES : 2 * STORED_BYTES] + third)
    assert await store.get_range("a", 0, CHUNK_BYTES) == bytes(CHUNK_BYTES)
    with pytest.raises(Corrupt, match=r"object a has a damaged chunk 1, encrypted with key first"):
        await store.get_range("a", CHUNK_BYTES, 1)


async def test_equal_objects_have_different_bytes_without_their_text() -> None:
    inner = MemoryStore()
    store = encrypted(inner)
    for key in ("a", "b"):
        await store.put(key, [PLANTED * 5000])
    first, second = await inner.get("a"), await inner.get("b")
    assert PLANTED not in first + second
    assert first[HEAD_BYTES:] != second[HEAD_BYTES:]


@pytest.mark.parametrize("size", [PART_BYTES_MIN - 1, PART_BYTES_MIN, 2 * PART_BYTES_MIN, 2 * PART_BYTES_MIN + 5])
async def test_an_object_in_parts_has_an_end(size: int) -> None:
    inner = MemoryStore()
    store = encrypted(inner)
    data = random.Random(size).randbytes(size)
    async with streamed_put(store, "a", part_bytes=PART_BYTES_MIN) as put:
        await put.write(data)
    assert await store.get("a") == data
    assert [listed.size_bytes for listed in await store.list("")] == [size]
    assert await store.get_range("a", size - 9, 9) == data[-9:]
    with pytest.raises(Invalid):
        await store.get_range("a", size, 1)
    stored = await inner.get("a")
    await replace(inner, "a", stored[: len(stored) // STORED_BYTES * STORED_BYTES - STORED_BYTES])
    with pytest.raises(Corrupt):
        await store.get("a")
    with pytest.raises(Invalid, match="a multiple of 65536"):
        await store.begin_parts("b", PART_BYTES_MIN + 1)


class Forgetful(MemoryStore):
    """Stores an object or a part, and answers the first time that the outcome is unknown."""

    def __init__(self) -> None:
        super().__init__()
        self.failures = {"put": 1, "part": 1}

    async def put(self, key: str, body: Sequence[Buffer], *, if_match: str | None = None) -> str:
        etag = await super().put(key, body, if_match=if_match)
        self.fail("put")
        return etag

    async def begin_parts(self, key: str, part_bytes: int) -> MemoryParts:
        parts = await super().begin_parts(key, part_bytes)
        store = self

        class Parts:
            async def put_part(self, number: int, body: Sequence[Buffer]) -> None:
                await parts.put_part(number, body)
                store.fail("part")

            complete, abort = parts.complete, parts.abort

        return Parts()  # type: ignore[return-value]

    def fail(self, what: str) -> None:
        self.failures[what] -= 1
        if self.failures[what] == 0:
            raise Unavailable("the answer is lost")


@pytest.mark.parametrize("size", [100, PART_BYTES_MIN, PART_BYTES_MIN + 100])
async def test_a_put_in_doubt_is_sent_again_with_the_same_bytes(size: int) -> None:
    inner = Forgetful()
    store = EncryptedStore(RetryingStore(inner, jitter=lambda: 0.0), keys(FIRST), SystemEntropy())
    async with streamed_put(store, "a", part_bytes=PART_BYTES_MIN) as put:
        await put.write(bytes(size))
    assert min(inner.failures.values()) <= 0, "an answer was lost"
    assert await store.get("a") == bytes(size)


async def test_an_unknown_key_proves_no_damage_and_is_named() -> None:
    inner = MemoryStore()
    await encrypted(inner, SECOND).put("a", [b"text"])
    for read in (lambda store: store.get("a"), lambda store: store.get_range("a", 0, 1)):
        with pytest.raises(Invalid, match=r"object a is encrypted with key [0-9a-f]{8}, which is not in the key file"):
            await read(encrypted(inner, FIRST))


async def test_a_new_first_key_is_for_new_objects_and_old_keys_still_read() -> None:
    inner = MemoryStore()
    await encrypted(inner, FIRST).put("old", [b"text"])
    rotated = encrypted(inner, SECOND, FIRST)
    await rotated.put("new", [b"texts"])
    assert [await rotated.get(key) for key in ("old", "new")] == [b"text", b"texts"]
    assert await keys_in_use(rotated, "") == {"first": KeyUse(1, 4), "second": KeyUse(1, 5)}
    await rotated.delete(["old"])
    assert await keys_in_use(rotated, "") == {"second": KeyUse(1, 5)}
    assert await encrypted(inner, SECOND).get("new") == b"texts"


async def test_plain_objects_are_read_only_if_that_is_allowed() -> None:
    inner = MemoryStore()
    data = {"small": b"ab", "empty": b"", "large": random.Random(1).randbytes(4 * CHUNK_BYTES)}
    # A client may have written text that looks like a chunk at the place where an encrypted object has one.
    look_alike = bytes(STORED_BYTES) + b"PSE\x01" + bytes(2 * CHUNK_BYTES)
    data["look-alike"] = look_alike
    for key, text in data.items():
        await inner.put(key, [text])
        for read in (lambda store, key=key: store.get(key), lambda store, key=key: store.get_range(key, 0, 1)):
            with pytest.raises(Invalid):
                await read(encrypted(inner))
    store = encrypted(inner, plain=Plain.READ)
    await store.put("sealed", [bytes(100_000)])
    for key, text in data.items():
        assert await store.get(key) == text
        for position, length in ((0, 1), (1, len(text) - 1), (CHUNK_BYTES, 100), (len(text) - 1, 1)):
            if length > 0 and 0 <= position <= len(text) - length:
                assert await store.get_range(key, position, length) == text[position : position + length]
    sizes = {listed.key: listed.size_bytes for listed in await store.list("")}
    assert sizes == {**{key: len(text) for key, text in data.items()}, "sealed": 100_000}
    etag = (await store.list("small"))[0].etag
    await store.put("small", [b"abc"], if_match=etag)
    assert await encrypted(inner).get("small") == b"abc"
    assert [listed.size_bytes for listed in await store.list("small")] == [3]


class DenyingStore(MemoryStore):
    """Denies its next reads of ranges, as S3 does for a moment after a change of permissions."""

    denied = 0

    async def get_up_to(self, key: str, position: int, length: int) -> bytes:
        if self.denied:
            self.denied -= 1
            raise Invalid("s3 answered AccessDenied")
        return await super().get_up_to(key, position, length)


@pytest.mark.parametrize("denied", [1, 2])
async def test_a_read_that_is_denied_for_a_moment_returns_no_encrypted_bytes(denied: int) -> None:
    inner = DenyingStore()
    store = encrypted(inner, plain=Plain.READ)
    await store.put("a", [PLANTED])
    inner.denied = denied
    with pytest.raises(Invalid, match="AccessDenied"):
        await store.get_range("a", 0, len(PLANTED))
    assert await store.get_range("a", 0, len(PLANTED)) == PLANTED


async def test_a_listing_that_is_denied_for_a_moment_records_no_object_as_plain() -> None:
    inner = DenyingStore()
    store = encrypted(inner, plain=Plain.READ)
    await store.put("a", [PLANTED])
    inner.denied = 1
    with pytest.raises(Invalid, match="AccessDenied"):
        await store.list("")
    assert [listed.size_bytes for listed in await store.list("")] == [len(PLANTED)]


async def test_damage_stays_damage_where_plain_objects_are_allowed() -> None:
    inner = MemoryStore()
    store = encrypted(inner, plain=Plain.READ)
    await store.put("a", [bytes(2 * CHUNK_BYTES)])
    stored = bytearray(await inner.get("a"))
    stored[STORED_BYTES] ^= 1  # the magic of the second chunk
    await replace(inner, "a", bytes(stored))
    for read in (lambda: store.get("a"), lambda: store.get_range("a", CHUNK_BYTES, 1)):
        with pytest.raises(Corrupt):
            await read()


async def test_the_first_step_of_turning_on_reads_both_and_writes_plain_objects() -> None:
    inner = MemoryStore()
    await encrypted(inner).put("sealed", [b"text"])
    learning = encrypted(inner, plain=Plain.WRITE)
    await learning.put("plain", [b"text"])
    async with streamed_put(learning, "parts", part_bytes=PART_BYTES_MIN) as put:
        await put.write(bytes(PART_BYTES_MIN + 1))
    assert await inner.get("plain") == b"text"
    assert await inner.get("parts") == bytes(PART_BYTES_MIN + 1)
    assert await learning.get("sealed") == b"text"
    assert (await keys_in_use(learning, ""))["not encrypted"].objects == 2


def key_file(folder: Path, *lines: str, mode: int = 0o600) -> Path:
    path = folder / "keys"
    path.write_text("# comment\n\n" + "".join(lines), encoding="utf-8")
    path.chmod(mode)
    return path


async def test_a_key_command_replaces_the_file(tmp_path: Path) -> None:
    path = key_file(tmp_path, FIRST, mode=0o644)
    found = await read_keys(f"command:{sys.executable} -c 'print(open(\"{path}\").read())'")
    assert found.newest.name == "first"
    for command, reason in (
        (f"{sys.executable} -c 'raise SystemExit(3)'", "failed with status 3"),
        (f"{sys.executable} -c pass", "has 0 keys"),
        ("/nowhere/kms decrypt", "cannot run the key command /nowhere/kms: No such file"),
        ("open 'quote", "open quote"),
        ("", "names no program"),
    ):
        with pytest.raises(Invalid, match=reason):
            await read_keys(f"command:{command}")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "has 0 keys, allowed are 1 to 100"),
        ("secretword\n", "line 3 of .* is not a name and a key"),
        ("name secretword\n", "line 3 of .* needs a key of 32 bytes"),
        (FIRST + FIRST.replace("first", "again"), "line 4 of .* has the name or the key of an earlier line"),
        (FIRST + line("first", 3), "line 4 of .* has the name or the key of an earlier line"),
        ("../name " + FIRST.split()[1], "line 3 of .* is not a name"),
    ],
)
async def test_an_error_in_the_key_file_names_the_line_and_shows_no_part_of_it(
    tmp_path: Path, text: str, reason: str
) -> None:
    with pytest.raises(Invalid, match=reason) as raised:
        await read_keys(str(key_file(tmp_path, text)))
    assert "secretword" not in str(raised.value)
    assert FIRST.split()[1] not in str(raised.value)


async def test_the_key_file_belongs_to_its_owner(tmp_path: Path) -> None:
    for mode, is_good in ((0o600, True), (0o400, True), (0o440, True), (0o620, False), (0o604, False)):
        path = str(key_file(tmp_path, FIRST, mode=mode))
        if is_good:
            assert (await read_keys(path)).newest.name == "first"
        else:
            with pytest.raises(Invalid, match="set its mode to 0600"):
                await read_keys(path)
        os.unlink(path)
    for path in ("relative/keys", str(tmp_path / "absent")):
        with pytest.raises(Invalid, match=r"absolute path|cannot read the key file"):
            await read_keys(path)


async def test_a_key_shows_no_secret() -> None:
    assert repr(keys(FIRST).newest) == "Key(first)"


async def test_an_address_selects_the_encryption(tmp_path: Path) -> None:
    address = f"file://{tmp_path}/objects?encryption_keys={key_file(tmp_path, FIRST)}"
    store = await open_store(address)
    await store.put("cluster/a", [PLANTED])
    assert await store.get("cluster/a") == PLANTED
    assert [listed.key for listed in await store.list("")] == ["cluster/a"]
    assert [listed.key for listed in await store.list("", limit=1)] == ["cluster/a"]
    await store.put("zzz", [b""])
    assert [listed.key for listed in await store.list("d", limit=1)] == []
    assert [listed.key for listed in await store.list("", after="cluster/a", limit=1)] == ["zzz"]
    assert [listed.key for listed in await store.list("", limit=2)] == ["cluster/a", "zzz"]
    await store.close()
    files = [path for path in (tmp_path / "objects").rglob("*") if path.is_file()]
    assert all(PLANTED not in path.read_bytes() for path in files)
    assert tmp_path / "objects" / "cluster" / "a" in files


async def opened(folder: Path, *lines: str, plain: str = "") -> None:
    options = f"?encryption_keys={key_file(folder, *lines)}" if lines else ""
    store = await open_store(f"file://{folder}/objects{options}{f'&encryption_plain={plain}' if plain else ''}")
    await store.close()


async def test_a_store_with_encrypted_objects_opens_only_with_its_keys(tmp_path: Path) -> None:
    await opened(tmp_path)
    await opened(tmp_path, FIRST, plain="write")
    await opened(tmp_path)
    await opened(tmp_path, FIRST)
    for wrong in ((), (SECOND,)):
        with pytest.raises(Invalid, match=r"add encryption_keys to its address|is not in the key file"):
            await opened(tmp_path, *wrong)
    await opened(tmp_path, FIRST, SECOND)
    await opened(tmp_path, SECOND, FIRST)  # from now on the second key is needed
    with pytest.raises(Invalid, match="is not in the key file"):
        await opened(tmp_path, FIRST)
    await opened(tmp_path, FIRST, SECOND, plain="write")
    await opened(tmp_path, SECOND)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ("encryption_plain=read", "encryption_plain needs encryption_keys"),
        ("encryption_keys={keys}&encryption_plain=maybe", "reject, read, write: 'maybe'"),
        ("encryption_keys={keys}&color=red", "no file option 'color'"),
    ],
)
async def test_options_that_do_not_fit_are_invalid(tmp_path: Path, options: str, reason: str) -> None:
    named: Callable[..., str] = options.format
    with pytest.raises(Invalid, match=reason):
        await open_store(f"file://{tmp_path}/objects?{named(keys=key_file(tmp_path, FIRST))}")


class Counting:
    """Bytes that count up, in place of random ones."""

    def take(self, count: int) -> bytes:
        return bytes(index % 256 for index in range(count))


async def test_objects_of_this_release_stay_readable() -> None:
    inner = MemoryStore()
    golden = bytes.fromhex("50534502abc2321f000102030405060708090a0b4e0b0c72e342ccc9ce342bce0ed3a6bc7a61f1f2")
    await inner.put("cluster/a", [golden])
    assert await encrypted(inner).get("cluster/a") == b"text"
    await EncryptedStore(inner, keys(FIRST), Counting()).put("cluster/a", [b"text"], if_match="v1")
    assert await inner.get("cluster/a") == golden
