"""A sequencer starts only on a safe journal, or on any journal with `unsafe_journal`."""

import asyncio

import pytest

from penstock.contracts.errors import Invalid, Unavailable
from penstock.runtime.journal import Journal, JournalLost
from penstock.runtime.nats.monitor import ServerReport
from penstock.runtime.process.health import Health
from penstock_sequencer.config import SequencerConfig
from penstock_sequencer.journal_guard.durability import DurabilityLimits, JournalSafety, faults_of_servers
from tests.testkit.fakes.memory_journal import MemoryJournal, MemoryJournalStore
from tests.testkit.waiting import until

URLS = ["http://n1:8222", "http://n2:8222", "http://n3:8222"]


def report(
    name: str, *, version: str = "2.15.1", jetstream: bool = True, sync: bool = True, size: int = 3
) -> ServerReport:
    return ServerReport(f"id of {name}", version, jetstream, sync, size)


SOUND = {url: report(f"n{number}") for number, url in enumerate(URLS, 1)}


def without(*urls: str) -> dict[str, ServerReport]:
    return {url: report for url, report in SOUND.items() if url not in urls}


def test_three_sound_servers_are_safe() -> None:
    assert faults_of_servers(URLS, SOUND) == []


def test_a_server_that_does_not_answer_is_no_fault() -> None:
    assert faults_of_servers(URLS, without(URLS[2])) == []


@pytest.mark.parametrize("version", ["2.12.5", "v2.12.10", "2.13.0-RC.1", "3.0.0"])
def test_servers_from_the_oldest_safe_version_on_are_safe(version: str) -> None:
    assert faults_of_servers(URLS, SOUND | {URLS[0]: report("n1", version=version)}) == []


@pytest.mark.parametrize(
    ("found", "fault"),
    [
        (report("n1", sync=False), "acknowledges entries before they are on its disk"),
        (report("n1", jetstream=False, sync=False), "has no JetStream"),
        (report("n1", version="2.12.4"), "has version 2.12.4, and versions before 2.12.5 may lose"),
        (report("n1", version="1.99.99"), "has version 1.99.99"),
        (report("n1", version="latest"), "has version latest"),
    ],
    ids=["lazy", "no jetstream", "old", "ancient", "unheard of"],
)
def test_one_server_that_is_not_safe_is_named_with_its_fault(found: ServerReport, fault: str) -> None:
    [text] = faults_of_servers(URLS, SOUND | {URLS[0]: found})
    assert text.startswith(f"the nats-server at {URLS[0]} {fault}")


@pytest.mark.parametrize(
    ("urls", "reports"),
    [
        (URLS[:1], {URLS[0]: report("n1")}),
        (URLS, dict.fromkeys(URLS, report("n1"))),
        (URLS, {URLS[0]: report("n1", size=5), **without(URLS[0], URLS[1])}),
    ],
    ids=["one of three", "three names for one", "three of five, one down"],
)
def test_every_server_of_the_cluster_must_be_named(urls: list[str], reports: dict[str, ServerReport]) -> None:
    [text] = faults_of_servers(urls, reports)
    assert "nats_monitor_url reaches" in text


class Rig:
    """The safety check with servers that answer from `reports`."""

    def __init__(self, *, answer_deadline_s: float = 60.0, **settings: object) -> None:
        self.reports = dict(SOUND)
        self.health = Health()
        self.asked = 0
        self.safety = JournalSafety(
            config=SequencerConfig(**settings),
            health=self.health,
            ask=self._ask,
            limits=DurabilityLimits(answer_deadline_s=answer_deadline_s, look_interval_s=0.01),
        )

    async def _ask(self, url: str) -> ServerReport:
        self.asked += 1
        if url not in self.reports:
            raise Unavailable(f"{url} does not answer")
        return self.reports[url]

    @property
    def degraded(self) -> str:
        found = self.health.report()["degraded"]
        assert isinstance(found, dict)
        return str(found.get("journal", ""))


MONITORED = {"nats_monitor_url": ",".join(URLS), "journal_replicas": 3}
LAZY = report("n2", sync=False)


SHORT_S = 0.05  # to wait for servers that never answer; on a busy machine good servers might exceed it too


async def test_a_safe_journal_is_accepted_without_a_warning() -> None:
    rig = Rig(**MONITORED)
    await rig.safety.check_servers()
    assert (rig.asked, rig.degraded) == (3, "")


async def test_an_unsafe_server_is_rejected_with_its_remedy() -> None:
    rig = Rig(**MONITORED)
    rig.reports[URLS[1]] = LAZY
    with pytest.raises(
        Invalid,
        match=r"^the journal is not safe: the nats-server at http://n2:8222 .*sync_interval: always.*unsafe_journal",
    ):
        await rig.safety.check_servers()


async def test_a_journal_of_unknown_safety_is_rejected_with_the_settings_to_set() -> None:
    with pytest.raises(
        Invalid, match=r"nothing shows that its servers sync \(set nats_monitor_url .* or journal_assurance to sync-a"
    ):
        await Rig().safety.check_servers()


async def test_the_operators_assurance_is_enough_and_no_server_is_asked() -> None:
    rig = Rig(journal_assurance="sync-always")
    await rig.safety.check_servers()
    await rig.safety.run()
    assert (rig.asked, rig.degraded) == (0, "")


async def test_monitoring_counts_more_than_the_operators_assurance() -> None:
    rig = Rig(**MONITORED, journal_assurance="sync-always")
    rig.reports[URLS[1]] = LAZY
    with pytest.raises(Invalid, match="http://n2:8222"):
        await rig.safety.check_servers()


async def test_servers_that_do_not_answer_are_unavailable_and_not_unsafe() -> None:
    rig = Rig(**MONITORED, answer_deadline_s=SHORT_S)
    rig.reports.clear()
    with pytest.raises(Unavailable, match="did not answer within"):
        await rig.safety.check_servers()


@pytest.mark.parametrize(
    ("settings", "reports", "reason"),
    [
        ({}, SOUND, "nothing shows that its servers sync"),
        (MONITORED, SOUND | {URLS[1]: LAZY}, "http://n2:8222 acknowledges"),
        (MONITORED, {}, "its safety is unknown: the monitoring of nats at"),
    ],
    ids=["nobody asked", "unsafe", "nobody answers"],
)
async def test_with_unsafe_journal_a_sequencer_starts_and_is_degraded(
    settings: dict[str, object], reports: dict[str, ServerReport], reason: str
) -> None:
    rig = Rig(**settings, unsafe_journal=True, answer_deadline_s=60.0 if reports else SHORT_S)
    rig.reports = reports
    await rig.safety.check_servers()
    assert reason in rig.degraded


async def test_a_server_that_becomes_unsafe_degrades_until_it_is_corrected() -> None:
    rig = Rig(**MONITORED)
    await rig.safety.check_servers()
    looking = asyncio.create_task(rig.safety.run())
    rig.reports[URLS[1]] = LAZY
    await until(lambda: "http://n2:8222 acknowledges" in rig.degraded)
    rig.reports.clear()
    asked = rig.asked
    await until(lambda: rig.asked > asked + 6)
    assert "http://n2:8222 acknowledges" in rig.degraded, "a server that does not answer keeps its fault"
    rig.reports.update(SOUND)
    await until(lambda: not rig.degraded)
    looking.cancel()


def one_copy() -> Journal:
    return MemoryJournal(MemoryJournalStore())


async def test_fewer_copies_than_the_setting_are_rejected() -> None:
    with pytest.raises(Invalid, match="it has 1 of the 3 copies that journal_replicas asks for"):
        await Rig(**MONITORED).safety.check_copies(one_copy())


async def test_one_copy_is_safe_if_the_setting_is_one() -> None:
    rig = Rig(journal_assurance="sync-always")
    await rig.safety.check_copies(one_copy())
    assert rig.degraded == ""


async def test_too_few_copies_and_an_unsafe_server_are_both_reported() -> None:
    rig = Rig(**MONITORED, unsafe_journal=True)
    rig.reports[URLS[1]] = LAZY
    await rig.safety.check_servers()
    await rig.safety.check_copies(one_copy())
    assert "http://n2:8222 acknowledges" in rig.degraded
    assert "1 of the 3 copies" in rig.degraded


class Journals:
    """Has one journal with one copy, or none and no way to make one with more copies."""

    def __init__(self, *, is_empty: bool) -> None:
        self._is_empty = is_empty

    async def journal(self, cluster: str, *, create: bool, replicas: int = 1) -> Journal:
        if self._is_empty:
            raise Invalid("replicas > 1 not supported") if create else JournalLost(f"no journal of {cluster}")
        if replicas > 1:
            raise Invalid(f"{replicas} are asked for")
        return one_copy()


async def open_three(journals: Journals, **settings: object) -> int:
    opener = Rig(**settings).safety.opener(journals)
    return (await (await opener.journal("c", create=True, replicas=3)).describe()).replicas


async def test_a_journal_with_fewer_copies_is_opened_only_where_it_may_be_unsafe() -> None:
    with pytest.raises(Invalid, match="3 are asked for"):
        await open_three(Journals(is_empty=False))
    assert await open_three(Journals(is_empty=False), unsafe_journal=True) == 1


async def test_a_journal_that_cannot_be_made_keeps_the_servers_error() -> None:
    with pytest.raises(Invalid, match="not supported"):
        await open_three(Journals(is_empty=True), unsafe_journal=True)


@pytest.mark.parametrize(
    "settings",
    [{"journal_assurance": "yes"}, {"nats_monitor_url": "n1:8222"}, {"nats_monitor_url": "http://n1:8222,nats://n2"}],
    ids=str,
)
def test_invalid_settings_are_rejected(settings: dict[str, str]) -> None:
    with pytest.raises(Invalid, match=r"journal assurance must be|nats monitor url must be"):
        SequencerConfig(**settings)
