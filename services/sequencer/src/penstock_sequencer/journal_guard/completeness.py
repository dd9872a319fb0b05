"""Checks at the start that the journal has all entries that the store knows of; else acknowledged ones are lost."""

import asyncio
import contextlib

from penstock.contracts.errors import Unavailable
from penstock.objectstore import ObjectStore
from penstock.runtime.journal import Journal, JournalInfo, JournalLost
from penstock.runtime.nats.loss import LossDetector
from penstock_sequencer.replication.halt import REMEDY, Halted
from penstock_sequencer.storage.archive_store import list_archive
from penstock_sequencer.storage.lost_entry import lost_entry_key, read_lost_entry

LOSS_LOOK_S = 0.5


async def check_journal_has_what_is_archived(
    journal: Journal, store: ObjectStore, cluster: str, *, look_interval_s: float = LOSS_LOOK_S
) -> None:
    """`Halted` if the journal ends before its archive, or before an entry that another service has seen.

    Then the journal lost acknowledged entries.

    A server of a cluster that has just started may have old data. So it must give the same answer for a while.
    """
    archived = max((last for _, last in await list_archive(store, cluster)), default=0)
    seen = await read_lost_entry(store, cluster)
    info = await journal.describe()
    detector = LossDetector(lambda: info.replicas > 1)
    while True:
        try:
            with detector.observe():
                _check_reaches(info, archived, seen, cluster)
            return
        except JournalLost as loss:
            raise Halted(f"the sequencer halted: {loss}. {REMEDY}") from loss
        except Unavailable:
            await asyncio.sleep(look_interval_s)
        with contextlib.suppress(Unavailable):  # then the last answer stays valid a little longer
            info = await journal.describe()


def _check_reaches(info: JournalInfo, archived: int, seen: int, cluster: str) -> None:
    if info.last_sequence < archived:
        raise JournalLost(
            f"the journal of cluster {cluster} ends at entry {info.last_sequence}, but entry {archived} is already in "
            "its archive"
        )
    if info.last_sequence < seen:
        raise JournalLost(
            f"the journal ends at entry {info.last_sequence}, but another service has seen entry {seen}: see the "
            f"object {lost_entry_key(cluster)}"
        )
