"""The journal as the sequencer sees it: an append-only stream of entries, in the same order for all replicas."""

from collections.abc import AsyncIterator
from typing import Protocol

import msgspec

from penstock.contracts.errors import Corrupt, Fenced

# The exit code of a process that ends with `JournalStuck`. The supervisor then restarts the nats-server too.
# In sysexits.h it is a temporary failure (EX_TEMPFAIL). Neither Python nor a signal causes this code.
JOURNAL_STUCK_EXIT_CODE = 75


class JournalLost(Fenced):
    """The stream vanished, was created again, or ends before an entry already seen: halt, never create another."""


class JournalStuck(Fenced):
    """The stream answers requests but no append, until its server restarts: end the process with its own exit code."""


class JournalGap(Corrupt):
    """An entry in the middle of the stream is missing: halt."""


class JournalEntry(msgspec.Struct, frozen=True, gc=False):
    """One stored entry; sequences are contiguous, the first entry ever has 1."""

    sequence: int
    data: bytes


class JournalInfo(msgspec.Struct, frozen=True):
    """The state of the stream as its server reports it."""

    first_sequence: int  # of the oldest entry kept; last_sequence + 1 when none is
    last_sequence: int  # 0 when nothing was ever appended
    created: str  # when the stream was created, in the server's format; another value is another stream
    replicas: int


class Journal(Protocol):
    """JetStream's guarantees: an acknowledged entry stays; all readers see the same entries at the same sequences."""

    @property
    def entry_bytes_max(self) -> int:
        """The largest entry that can be appended, in bytes."""

    async def describe(self) -> JournalInfo:
        """The present state of the stream.

        `JournalLost` if there is none or it is not the one seen first, `Unavailable` if no server answers.
        """

    async def last_sequence(self) -> int:
        """The sequence of the last entry; it covers every entry acknowledged before this call.

        `Unavailable` if no server answers that certainly knows all these entries, else as `describe`.
        """

    async def append(self, entry_id: str, data: bytes) -> int:
        """Store one entry and return its sequence.

        A second append with the same id within the server's window stores nothing and returns the first sequence.
        `Unavailable`: unknown whether it is stored; look for its id in the tail. `JournalLost`: halt.
        `JournalStuck`: end, nothing more will be stored.
        """

    async def purge(self, up_to: int) -> None:
        """Remove all entries up to and including `up_to`. Sequences continue; a repeated call does no harm.

        `Invalid` if there is no such entry yet, `JournalLost`: halt. `Unavailable`: unknown whether they are removed.
        """

    def tail(self, after: int) -> AsyncIterator[list[JournalEntry]]:
        """All entries with a sequence above `after`, in order, each once, in bounded groups; then new ones, for ever.

        Reconnects and resumes automatically. `JournalGap` if an entry is missing. `JournalLost` if the stream is not
        the one that `describe` first saw or ends before `after`.
        """
