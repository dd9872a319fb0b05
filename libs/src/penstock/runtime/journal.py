"""The journal as the sequencer sees it: an append-only stream of entries in one order that everybody shares."""

from collections.abc import AsyncIterator
from typing import Protocol

import msgspec

from penstock.contracts.errors import Corrupt, Fenced

# What a process that ends with `JournalStuck` exits with, so that its supervisor starts the nats-server again too;
# sysexits.h has it for what may go well next time, and neither Python nor a signal makes it.
JOURNAL_STUCK_EXIT_CODE = 75


class JournalLost(Fenced):
    """The stream vanished, was made again, or ends before what was already seen: halt, never create another."""


class JournalStuck(Fenced):
    """The stream answers questions but no append, and will not until its server starts again: end, and say so."""


class JournalGap(Corrupt):
    """An entry in the middle of the stream is missing: halt."""


class JournalEntry(msgspec.Struct, frozen=True, gc=False):
    """One stored entry; sequences are contiguous, the first entry ever has 1."""

    sequence: int
    data: bytes


class JournalInfo(msgspec.Struct, frozen=True):
    """The stream's own account of itself."""

    first_sequence: int  # of the oldest entry kept; last_sequence + 1 when none is
    last_sequence: int  # 0 when nothing was ever appended
    created: str  # when the stream was made, the server's words; another value is another stream
    replicas: int


class Journal(Protocol):
    """JetStream's promises: an acknowledged entry stays, all readers see the same entries at the same sequences."""

    @property
    def entry_bytes_max(self) -> int:
        """The largest entry that can be appended, in bytes."""

    async def describe(self) -> JournalInfo:
        """What the stream holds now.

        `JournalLost` if there is none or it is not the one seen first, `Unavailable` if nobody answers.
        """

    async def last_sequence(self) -> int:
        """Of the last entry: no lower than any that anybody knew to be stored when this was called.

        `Unavailable` if nobody answers who is sure to know that, else as `describe`.
        """

    async def append(self, entry_id: str, data: bytes) -> int:
        """Store one entry and return its sequence.

        Appended again with the same id within the server's window it is still one entry, and its first sequence is
        returned. `Unavailable`: unknown whether it is stored; look for its id in the tail. `JournalLost`: halt.
        `JournalStuck`: end, nothing more will be stored.
        """

    async def purge(self, up_to: int) -> None:
        """Remove all entries up to `up_to` and that one; what is removed already stays so, sequences go on.

        `Invalid` if there is no such entry yet, `JournalLost`: halt. `Unavailable`: unknown whether they are removed.
        """

    def tail(self, after: int) -> AsyncIterator[list[JournalEntry]]:
        """All entries with a sequence above `after`, in order, each once, in bounded groups; then new ones, for ever.

        Reconnects and resumes by itself. `JournalGap` if an entry is missing, `JournalLost` if the stream is not the
        one that `describe` first saw or ends before `after`.
        """
