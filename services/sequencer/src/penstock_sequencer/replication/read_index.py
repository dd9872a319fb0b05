"""How far the journal reaches: what a replica has to apply before it answers a question that asks for the present.

The journal is asked once for all who came before it was asked. Who comes while an answer is on its way shares the next
one: the one under way may have been given before what that asker already knows of.
"""

import asyncio

from penstock.contracts.errors import Unavailable
from penstock.runtime.journal import Journal, JournalLost


class ReadIndex:
    """Asks the journal, one question at a time, however many want to know."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._asking = asyncio.Lock()
        self._gathering: _Question | None = None

    async def ask(self, timeout_s: float) -> int:
        """A sequence no lower than that of any entry which was stored when this was called.

        `Unavailable` if the journal does not say in time.
        """
        question = self._gathering
        if question is None:
            question = self._gathering = _Question()
        try:
            async with asyncio.timeout(timeout_s), self._asking:
                # If who sent it gave up meanwhile, the next in line sends it.
                return await self._send(question) if question.sequence is None else question.sequence
        except TimeoutError as error:
            raise Unavailable(f"the journal did not say within {timeout_s:g} s how far it reaches") from error

    async def _send(self, question: "_Question") -> int:
        if self._gathering is question:
            self._gathering = None
        try:
            question.sequence = await self._journal.last_sequence()
        except JournalLost as error:  # the replica's own tail sees it as well, and halts
            raise Unavailable(str(error)) from error
        return question.sequence


class _Question:
    """What several want to know."""

    def __init__(self) -> None:
        self.sequence: int | None = None
