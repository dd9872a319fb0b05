"""Checks before the service is ready that the journal keeps acknowledged entries, even when the power fails.

JetStream acknowledges before it syncs unless its settings demand otherwise, and a sequencer's answer is a promise. So a
sequencer asks every nats-server on its monitoring port (`nats_monitor_url`), or trusts a setting of the operator
(`journal_assurance`). It does not start on an unsafe journal. With `unsafe_journal` it starts, and is degraded.

- Servers that do not answer are no fault while a majority answers: a sequencer must also start while one is down.
- A fault found later (a server came back with other settings) ends no process: it would end every sequencer at once.
  It makes the service degraded, and the next start fails on it.
- One copy is safe, but not highly available. Fewer copies than `journal_replicas` are a fault.
"""

import asyncio
import re
from collections.abc import Mapping

import msgspec
import structlog

from penstock.contracts.errors import Invalid, Unavailable
from penstock.runtime.journal import Journal, JournalLost
from penstock.runtime.nats.monitor import Ask, ServerReport, ask_server, ask_servers
from penstock.runtime.process.health import Health
from penstock_sequencer.config import SequencerConfig
from penstock_sequencer.journal_guard.identity import JournalOpener

OLDEST_SAFE_VERSION = (2, 12, 5)  # Jepsen found losses in 2.12.1, even with every entry synced
DEGRADED = "journal"
NOT_VOUCHED_FOR = (
    "nothing shows that its servers sync (set nats_monitor_url to the monitoring addresses of all nats-servers, "
    "http://HOST:8222,..., or journal_assurance to sync-always if you know that they sync every entry)"
)
REMEDY = "correct that, or set unsafe_journal and accept that a power failure may lose acknowledged records"

log = structlog.get_logger()


class DurabilityLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How long the check waits for the servers, and how often it repeats."""

    answer_deadline_s: float = 10.0  # for servers that start together with this process
    look_interval_s: float = 30.0


DURABILITY_LIMITS = DurabilityLimits()


class JournalSafety:
    """The check at a sequencer's start; the check of the servers repeats while the sequencer runs."""

    def __init__(
        self,
        *,
        config: SequencerConfig,
        health: Health,
        ask: Ask = ask_server,
        limits: DurabilityLimits = DURABILITY_LIMITS,
    ) -> None:
        self._urls = [url.strip() for url in config.nats_monitor_url.split(",") if url.strip()]
        self._is_vouched_for = bool(config.journal_assurance)
        self._replicas = config.journal_replicas
        self._may_be_unsafe = config.unsafe_journal
        self._health = health
        self._ask = ask
        self._limits = limits
        self._faults: dict[str, str] = {}  # by the subject of the check
        self._reported_reason = ""

    async def check_servers(self) -> None:
        """Before the journal is opened; `Invalid` if a server is not safe, `Unavailable` if too few answer."""
        try:
            await self._look_at_servers()
        except Unavailable as error:
            if not self._may_be_unsafe:
                raise
            self._faults["servers"] = f"its safety is unknown: {error}"
        self._reject_or_report()

    async def check_copies(self, journal: Journal) -> None:
        """After the journal was opened; `Invalid` if it has fewer copies than the setting."""
        copies = (await journal.describe()).replicas
        if copies < self._replicas:
            self._faults["copies"] = f"it has {copies} of the {self._replicas} copies that journal_replicas asks for"
        elif copies == 1:
            log.info("journal_has_one_copy", note="safe, but without its nats-server nothing can be committed")
        self._reject_or_report()

    def opener(self, journals: JournalOpener) -> JournalOpener:
        """The opener of the journal: `journals`, or if it may be unsafe, one that accepts fewer copies."""
        return _AnyCopies(journals) if self._may_be_unsafe else journals

    async def run(self) -> None:
        """Check the servers repeatedly, until cancelled; returns if there are none."""
        while self._urls:
            await asyncio.sleep(self._limits.look_interval_s)
            try:
                await self._look_at_servers()
                self._report()
            except (Unavailable, Invalid) as error:
                log.warning("journal_servers_not_checked", error=str(error))

    async def _look_at_servers(self) -> None:
        if not self._urls:
            self._faults["servers"] = "" if self._is_vouched_for else NOT_VOUCHED_FOR
            return
        reports = await ask_servers(self._urls, self._limits.answer_deadline_s, self._ask)
        for url in self._urls:
            if url not in reports:
                log.warning("journal_server_not_checked", url=url, error="no answer")
        self._faults["servers"] = "; ".join(faults_of_servers(self._urls, reports))

    def _reject_or_report(self) -> None:
        if self._reason() and not self._may_be_unsafe:
            raise Invalid(f"the journal is not safe: {self._reason()}; {REMEDY}")
        self._report()

    def _report(self) -> None:
        """Set the service degraded by all faults, or not degraded without a fault."""
        reason = self._reason()
        self._health.set_degraded(DEGRADED, reason)
        if reason and reason != self._reported_reason:
            log.warning("journal_not_safe", reason=reason)
        elif self._reported_reason and not reason:
            log.info("journal_safe_again")
        self._reported_reason = reason

    def _reason(self) -> str:
        return "; ".join(filter(None, self._faults.values()))


class _AnyCopies:
    """Opens a journal even if it has fewer copies than the setting."""

    def __init__(self, journals: JournalOpener) -> None:
        self._journals = journals

    async def journal(self, cluster: str, *, create: bool, replicas: int = 1) -> Journal:
        try:
            return await self._journals.journal(cluster, create=create, replicas=replicas)
        except Invalid as rejection:
            try:
                return await self._journals.journal(cluster, create=False)
            except JournalLost:
                raise rejection from None


def faults_of_servers(urls: list[str], reports: Mapping[str, ServerReport]) -> list[str]:
    """The faults of the servers that answered, in words; none if the journal is safe with them."""
    faults = [f"the nats-server at {url} {fault}" for url, report in reports.items() for fault in _of(report)]
    servers = len({report.server_id for report in reports.values()}) + len(urls) - len(reports)
    size = max((report.cluster_size for report in reports.values()), default=0)
    if servers < size:
        faults.append(f"nats_monitor_url reaches {servers} of the {size} nats-servers, and must name every one")
    return faults


def _of(report: ServerReport) -> list[str]:
    faults = []
    if not report.has_jetstream:
        faults.append("has no JetStream")
    elif not report.syncs_always:
        faults.append("acknowledges entries before they are on its disk (its jetstream needs sync_interval: always)")
    version = re.match(r"v?(\d+)\.(\d+)\.(\d+)", report.version)
    if version is None or tuple(map(int, version.groups())) < OLDEST_SAFE_VERSION:
        oldest = ".".join(map(str, OLDEST_SAFE_VERSION))
        faults.append(f"has version {report.version}, and versions before {oldest} may lose acknowledged entries")
    return faults
