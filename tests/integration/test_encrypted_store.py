"""A real S3 server keeps objects encrypted with our key, and refuses reads without it."""

import os
from pathlib import Path
from urllib.parse import urlencode

import pytest

from penstock.contracts.errors import PenstockError
from penstock.objectstore import ObjectStore, open_store
from tests.testkit.servers.s3_server import ACCESS_KEY, BUCKET, SECRET_KEY, S3Server
from tests.testkit.servers.seaweed import running_seaweed

pytestmark = pytest.mark.slow

RECORD = b"a record that only its readers may see"


async def opened(server: S3Server, **encryption: str) -> ObjectStore:
    options = {"endpoint": server.endpoint, "access_key": ACCESS_KEY, "secret_key": SECRET_KEY, **encryption}
    return await open_store(f"s3://{BUCKET}?{urlencode(options)}")


async def test_objects_with_our_key_are_encrypted_and_need_it(tmp_path: Path) -> None:
    keys = {}
    for name in ("ours", "another"):
        keys[name] = tmp_path / name
        keys[name].write_bytes(os.urandom(32))
    (tmp_path / "server").mkdir()
    with running_seaweed(tmp_path / "server") as server:
        ours = await opened(server, sse="customer", sse_key_file=str(keys["ours"]))
        plain = await opened(server)
        strange = await opened(server, sse="customer", sse_key_file=str(keys["another"]))
        try:
            await ours.put("kept", [RECORD])
            await plain.put("plain", [RECORD[::-1]])
            assert await ours.get_range("kept", 2, 6) == b"record"
            for other in (plain, strange):
                with pytest.raises(PenstockError):
                    await other.get("kept")
        finally:
            for store in (ours, plain, strange):
                await store.close()
    stored = b"".join(path.read_bytes() for path in (tmp_path / "server" / "data").rglob("*") if path.is_file())
    assert RECORD[::-1] in stored, "the files of the server have objects"
    assert RECORD not in stored
