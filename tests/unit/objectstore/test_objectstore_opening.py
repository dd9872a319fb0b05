"""A store opens from its address, or an error of one sentence gives the reason and contains no secrets."""

import re
from pathlib import Path

import prometheus_client
import pytest

from penstock.contracts.errors import Invalid, PenstockError, Unavailable
from penstock.objectstore import CloudLimits, StoreLimits, absolute_address, folder_address, open_store, opening
from tests.testkit.fakes.clock import ManualClock


async def test_stores_in_memory_share_their_objects_by_name() -> None:
    first = await open_store("memory://shared-by-name", clock=ManualClock(1.234, epoch_ms=0))
    second = await open_store("memory://shared-by-name")
    other = await open_store("memory://another-name")
    await first.put("a", [b"bytes"])
    assert await second.get("a") == b"bytes"
    assert [listed.modified_ms for listed in await second.list("")] == [1234]
    assert await other.list("") == []


async def test_a_folder_may_be_absolute_relative_or_with_blanks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for address in (f"file://{tmp_path}/x%20y", "file://./x y", "file://x y"):
        store = await open_store(address)
        await store.put(f"a/{len(address)}", [b"bytes"])
        await store.close()
    assert len(list((tmp_path / "x y" / "a").iterdir())) == 3


def test_an_absolute_address_is_the_same_store_from_every_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert absolute_address("file://./x%20y") == f"file://{tmp_path}/x%20y" == folder_address(tmp_path / "x y")
    options = "?encryption_keys=/k&encryption_plain=read"
    assert absolute_address(f"file://./x%20y{options}") == f"file://{tmp_path}/x%20y{options}"
    for address in ("file:///x", "s3://bucket/x", "memory://x", "nonsense"):
        assert absolute_address(address) == address


@pytest.mark.parametrize(
    ("address", "has_local_reads"),
    [
        ("file://{}", True),
        ("file://{}?local_reads=on", True),
        ("file://{}?local_reads=off", False),
        ("memory://by-default", False),
        ("memory://local?local_reads=on", True),
    ],
)
async def test_local_reads_are_an_option_of_the_address(tmp_path: Path, address: str, has_local_reads: bool) -> None:
    store = await open_store(address.format(tmp_path), registry=prometheus_client.CollectorRegistry())
    assert store.has_local_reads == has_local_reads
    await store.close()


async def test_a_file_has_the_time_of_its_write(tmp_path: Path) -> None:
    store = await open_store(f"file://{tmp_path}")
    await store.put("a", [b"bytes"])
    [listed] = await store.list("")
    assert listed.modified_ms == (tmp_path / "a").stat().st_mtime_ns // 1_000_000
    await store.close()


async def test_a_registry_gets_the_requests() -> None:
    registry = prometheus_client.CollectorRegistry()
    store = await open_store("memory://measured", registry=registry)
    await store.list("")
    labels = {"verb": "list", "outcome": "ok"}
    assert registry.get_sample_value("penstock_store_requests_total", labels) == 1.0


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("", "a store address is"),
        ("/just/a/path", "a store address is"),
        ("file://", "a store address is"),
        ("abfs://bucket", "no store of kind 'abfs'"),
        ("file:///x?colour=red", "no file option 'colour'"),
        ("file:///x?local_reads=perhaps", "local_reads must be on or off: 'perhaps'"),
        ("s3://bucket?local_reads=on", "no s3 option 'local_reads'"),
        ("s3://bucket?colour=red", "no s3 option 'colour'"),
        ("s3://bucket?endpoint", "name=value"),
        ("s3://bucket?addressing=sideways", "path or virtual"),
        ("s3://bucket?access_key=someone", "go together"),
        ("s3://bucket/pre//fix", "not an object key"),
        ("s3:///prefix", "needs a bucket"),
        ("s3://bucket?sse=rot13", "s3, kms, customer: 'rot13'"),
        ("s3://bucket?sse=s3&sse_kms_key=hidden", "goes with sse=kms"),
        ("s3://bucket?sse_key_file=/dev/null", "goes with sse=customer"),
        ("s3://bucket?sse=customer", "needs sse_key_file"),
        ("s3://bucket?sse=customer&sse_key_file=/nowhere/key", "cannot read the key file /nowhere/key: No such file"),
        ("s3://bucket?sse=customer&sse_key_file=/dev/null", "has 0 bytes, not 32"),
        ("s3://bucket?endpoint=http://example:1&sse=customer&sse_key_file=/dev/null", "must be https"),
        ("s3://bucket?endpoint=nonsense&access_key=someone&secret_key=hidden", "nonsense"),
    ],
)
async def test_an_invalid_address_is_rejected_with_the_reason(address: str, reason: str) -> None:
    with pytest.raises(Invalid, match=reason) as raised:
        await open_store(address)
    assert "hidden" not in str(raised.value)
    assert "\n" not in str(raised.value)


async def test_an_s3_server_that_does_not_answer_is_unavailable_in_one_sentence() -> None:
    with pytest.raises(Unavailable, match=r"cannot use bucket b at http://127\.0\.0\.1:1: ") as raised:
        await open_store("s3://b/p?endpoint=http://127.0.0.1:1&access_key=someone&secret_key=hidden")
    assert isinstance(raised.value, PenstockError)
    assert "hidden" not in str(raised.value)
    assert "\n" not in str(raised.value)


class Entropy:
    """Entropy that counts its bytes, which are all zero."""

    def __init__(self) -> None:
        self.taken = 0

    def take(self, count: int) -> bytes:
        self.taken += count
        return bytes(count)


async def test_a_folder_takes_its_names_from_the_entropy_it_is_given(tmp_path: Path) -> None:
    entropy = Entropy()
    store = await open_store(f"file://{tmp_path}", entropy=entropy)
    opened = entropy.taken
    await store.put("a", [b"bytes"])
    assert 0 < opened < entropy.taken
    await store.close()


@pytest.mark.parametrize(
    ("address", "text"),
    [
        ("gs://", "a store address is"),
        ("gs:///prefix", "the address needs a name: gs://NAME/prefix"),
        ("az://c/x?acount=a", "no az option 'acount'; there are account, account_key, account_key_file, endpoint"),
        ("gs://b/x?account=a", "no gs option 'account'; there are endpoint, credentials_file"),
        ("az://c/x?account=a&account_key=b&account_key_file=/c", "exclude each other"),
        ("az://c/x?account=a&account_key_file=/absent", "cannot read the key file /absent"),
        ("az://c/x?account=a&account_key=no-base64!", "cannot use bucket or container c"),
        ("gs://b/x?credentials_file=/absent", "cannot use bucket or container b"),
        ("gs://b/.x", "not an object key"),
    ],
)
async def test_a_wrong_address_of_a_cloud_has_one_sentence(address: str, text: str) -> None:
    with pytest.raises(Invalid, match=re.escape(text)) as raised:
        await open_store(address)
    assert "\n" not in str(raised.value) and "no-base64" not in str(raised.value)


async def test_a_cloud_that_does_not_answer_is_unavailable() -> None:
    limits = StoreLimits(clouds=CloudLimits(connect_timeout_s=0.5))
    address = "az://c/x?account=a&account_key=aGVsbG8=&endpoint=http://127.0.0.1:1/a"
    with pytest.raises(Unavailable, match="cannot use bucket or container c"):
        await open_store(address, limits=limits)


@pytest.mark.parametrize(("scheme", "extra"), [("gs", "gcs"), ("az", "azure")])
async def test_a_cloud_without_its_library_names_the_extra(
    scheme: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opening, "find_spec", lambda name: None)
    with pytest.raises(Invalid, match=rf"pip install 'penstock\[{extra}\]'"):
        await open_store(f"{scheme}://bucket/x")
