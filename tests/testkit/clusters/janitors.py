"""Janitors that wait for seconds instead of minutes, and the contents of a bucket."""

import asyncio
import json
import subprocess
import sys
import urllib.request
from collections.abc import Awaitable, Callable, Sequence
from itertools import islice
from typing import TypeVar
from urllib.parse import urlencode, urlsplit

import pytest

from penstock.contracts.errors import Invalid
from penstock.objectstore import ObjectInfo, ObjectStore, Unfinished, open_store
from penstock.segment.keys import parse_journal_archive_key, parse_segment_key, parse_snapshot_key
from tests.testkit.clusters.cluster import Cluster, wait_until
from tests.testkit.servers.ports import free_port

CLUSTER = "default"
MARKER = f"{CLUSTER}/journal-identity"
GRACE_S = 2.0
START_S = 120.0
EXPLAIN_TIMEOUT_S = 180.0
UNFINISHED_S = 60.0
EAGER = {
    "GRACE_MS": str(int(GRACE_S * 1000)),
    "RETENTION_INTERVAL_MS": "200",
    "REAP_INTERVAL_MS": "200",
    "SWEEP_INTERVAL_MS": "60000",
    "LEASE_MS": "3000",
    "SNAPSHOT_ENTRIES": "100",
    "SNAPSHOT_INTERVAL_MS": "3000",
}

Result = TypeVar("Result")


def make_eager(monkeypatch: pytest.MonkeyPatch, **settings: str) -> None:
    """Give these settings to all processes that start from now on."""
    for name, value in (EAGER | settings).items():
        monkeypatch.setenv(f"PENSTOCK_{name}", value)


def until_janitors(cluster: Cluster) -> None:
    """Return when a janitor runs: the start of a cluster does not wait for it."""
    wait_until(lambda: any("penstock_janitor_" in name for name in cluster.metrics()), START_S, "a janitor")


def explained(cluster: Cluster, key: str, *flags: str) -> subprocess.CompletedProcess[str]:
    """The output of `penstock janitor explain` on an object, as soon as a janitor answers."""
    command = [sys.executable, "-m", "penstock.cli", "janitor", "explain", key, *flags, "--data", str(cluster.data)]

    def answer() -> subprocess.CompletedProcess[str] | None:
        done = subprocess.run(command, capture_output=True, text=True, timeout=EXPLAIN_TIMEOUT_S)
        if done.returncode:
            print(done.stderr)
            return None
        return done

    done: subprocess.CompletedProcess[str] = wait_until(answer, START_S, f"a janitor to explain {key}")
    return done


def reported_state(cluster: Cluster, key: str) -> str:
    """The state that a janitor reports for an object."""
    explanation: dict[str, str] = json.loads(explained(cluster, key, "--json").stdout)
    return explanation["verdict"]


class JanitorProcess:
    """One more janitor of a cluster, with any store."""

    def __init__(self, cluster: Cluster, name: str, store_url: str) -> None:
        self.log = cluster.data / "logs" / f"{name}.log"
        self._http = f"127.0.0.1:{free_port()}"
        flags = {
            "instance": name,
            "zone": "local",
            "nats-url": cluster.nats_url,
            "store-url": store_url,
            "http-port": self._http.rpartition(":")[2],
        }
        command = [
            sys.executable,
            "-m",
            "penstock_janitor",
            *(part for key in flags for part in (f"--{key}", flags[key])),
        ]
        with self.log.open("ab") as output:
            self._process = subprocess.Popen(command, stdout=output, stderr=output)

    def wrongs(self) -> dict[str, str]:
        """The errors that it reports, by the name of the loop."""
        assert self._process.poll() is None, self.log.read_text()
        try:
            with urllib.request.urlopen(f"http://{self._http}/health", timeout=10) as answer:
                errors: dict[str, str] = json.load(answer)["degraded"]
        except OSError:
            return {}
        return errors

    def __enter__(self) -> "JanitorProcess":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()


def landing_of(cluster: Cluster) -> str:
    """The address of the cluster's landing store at its own NATS server."""
    parts = urlsplit(cluster.nats_url)
    login = urlencode({"user": parts.username, "password": parts.password})
    return f"jetstream://{parts.hostname}:{parts.port}/{CLUSTER}?{login}"


class Bucket:
    """The contents of a store, read with a separate client."""

    def __init__(self, url: str) -> None:
        self.url = url

    def call(self, work: Callable[[ObjectStore], Awaitable[Result]]) -> Result:
        """Open the store and do some work with it."""

        async def called() -> Result:
            store = await open_store(self.url)
            try:
                return await work(store)
            finally:
                await store.close()

        return asyncio.run(called())

    def objects(self, prefix: str = "") -> list[ObjectInfo]:
        """All objects whose keys begin with the prefix."""

        async def listed(store: ObjectStore) -> list[ObjectInfo]:
            found: list[ObjectInfo] = []
            while page := await store.list(prefix, found[-1].key if found else ""):
                found += page
            return found

        return self.call(listed)

    def unfinished(self) -> Sequence[Unfinished]:
        """Uploads that were neither completed nor aborted."""
        return self.call(lambda store: store.unfinished(""))

    def until_nothing_is_unfinished(self, *except_keys: str) -> None:
        """Return when no upload is unfinished except those to these keys; one of a snapshot may be for a moment."""
        wait_until(lambda: [each.key for each in self.unfinished()] == [*except_keys], UNFINISHED_S, "uploads to end")

    def put(self, key: str, data: bytes = b"bytes") -> None:
        """Store an object."""
        self.call(lambda store: store.put(key, [data]))

    def segments(self) -> list[str]:
        """The keys of all segments."""
        return [info.key for info in self.objects(f"{CLUSTER}/segments/") if _parses(parse_segment_key, info.key)]

    def snapshots(self) -> list[int]:
        """The journal sequences of all snapshots."""
        return [parse_snapshot_key(info.key) for info in self.objects(f"{CLUSTER}/snapshots/")]

    def archive(self) -> list[tuple[int, int]]:
        """The first and last journal sequence of all objects of the archive."""
        return [parse_journal_archive_key(info.key) for info in self.objects(f"{CLUSTER}/journal/")]

    def leftovers(self) -> list[str]:
        """All objects except the journal's marker, snapshots and archive."""
        kept = (parse_snapshot_key, parse_journal_archive_key)
        keys = [info.key for info in self.objects() if not any(_parses(parse, info.key) for parse in kept)]
        return [key for key in keys if key != MARKER]

    def is_bounded(self) -> bool:
        """Whether there are at most two snapshots, and no more archive than the older one needs."""
        snapshots, archive = self.snapshots(), self.archive()
        old = [last for _, last in archive if snapshots and last < snapshots[0]]
        return 1 <= len(snapshots) <= 2 and len(old) <= 1


def levels_of(bucket: Bucket) -> set[int]:
    """The levels of all segments."""
    return {parse_segment_key(key)[0] for key in bucket.segments()}


def _parses(parse: Callable[[str], object], key: str) -> bool:
    try:
        parse(key)
    except Invalid:
        return False
    return True


def old_leftovers(cluster: Cluster, bucket: Bucket) -> list[str]:
    """At most one of the leftovers that are old enough to be deleted."""
    return list(islice((key for key in bucket.leftovers() if reported_state(cluster, key) != "young"), 1))
