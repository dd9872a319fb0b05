"""Systems other than Linux: each call that only Linux has is left out there."""

import asyncio
import os
import socket
import sys
from pathlib import Path

import pytest

from penstock.cli.children import Child, ChildSpec
from penstock.cli.ports import reserved_port
from penstock.objectstore.file.disk import sync_data, sync_file, uncache
from penstock.objectstore.file.store import open_file_store
from penstock.objectstore.store import PART_BYTES_MIN
from penstock.runtime.process.life import follow_parent
from tests.testkit.waiting import until

PRINTS_ITS_SIGNAL = """
import ctypes, time
found = ctypes.c_int()
ctypes.CDLL(None).prctl(2, ctypes.byref(found))
print("signal", found.value, flush=True)
while True: time.sleep(60)
"""
NO_PARENT = "999999999"
NO_FILE = 2**20  # a descriptor that this process does not have


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has the signal")
@pytest.mark.parametrize(("platform", "number"), [("linux", 15), ("darwin", 0)])
async def test_a_child_asks_for_a_signal_at_the_death_of_its_parent_on_linux_only(
    tmp_path: Path, platform: str, number: int
) -> None:
    log = tmp_path / "child.log"
    spec = ChildSpec("child", [sys.executable, "-c", PRINTS_ITS_SIGNAL], dict(os.environ), log)
    child = Child(spec, lambda _line: None, platform=platform)
    keeping = asyncio.create_task(child.keep())
    await until(lambda: log.exists() and log.read_text() == f"signal {number}\n")
    child.kill()
    await keeping


def test_without_linux_a_service_still_ends_if_its_parent_is_dead_at_the_start() -> None:
    assert follow_parent(str(os.getppid()), "darwin")
    assert not follow_parent(NO_PARENT, "darwin")
    assert follow_parent("", "darwin"), "it was started by hand"


@pytest.mark.parametrize("platform", ["darwin", "freebsd"])
def test_the_page_cache_is_left_alone_without_linux(platform: str) -> None:
    uncache(NO_FILE, 0, 0, platform)  # a call to the kernel would fail


@pytest.mark.parametrize("platform", ["linux", "darwin", "freebsd"])
def test_a_sync_reaches_the_file_on_every_system(platform: str, tmp_path: Path) -> None:
    if platform == "linux" != sys.platform:
        pytest.skip("the call does not exist here")
    with (tmp_path / "file").open("wb") as file:
        sync_file(file.fileno(), platform)
        sync_data(file.fileno(), platform)
    for sync in (sync_file, sync_data):
        with pytest.raises(OSError, match="Bad file descriptor"):
            sync(NO_FILE, platform)


async def test_a_folder_keeps_objects_without_linux(tmp_path: Path) -> None:
    store = await open_file_store(tmp_path, platform="darwin")
    await store.put("a", [b"bytes"])
    upload = await store.begin_parts("b", PART_BYTES_MIN)
    await upload.put_part(0, [b"part"])
    await upload.complete()
    assert (await store.get("a"), await store.get("b")) == (b"bytes", b"part")
    await store.close()


def test_without_linux_a_port_is_free_for_the_nats_server() -> None:
    with reserved_port("darwin") as port, socket.socket() as server:
        server.bind(("127.0.0.1", port))
