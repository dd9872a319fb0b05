"""Commands of many clients on their way to the sequencers in few messages.

What comes in one turn of the event loop travels together and becomes part of one journal entry, so clients who end
their transactions at the same time cost one question and one answer. Nobody waits for others: a command that comes
alone goes alone, at the end of its turn.
"""

import asyncio

import msgspec

from penstock.contracts.commands import Command, Outcome
from penstock.runtime.bus.sequencer_client import SequencerClient

COMMANDS_MAX = 256  # in one message: some milliseconds of a sequencer's time
MESSAGE_BYTES_MAX = 64 * 1024  # of commands in one message; a larger one goes alone, and only itself can be too large
COMMAND_DEADLINE_S = 10.0

_encoder = msgspec.msgpack.Encoder()


class _Asked:
    """One command and who waits for its outcome."""

    __slots__ = ("answer", "command", "size_bytes")

    def __init__(self, command: Command) -> None:
        self.command = command
        self.size_bytes = len(_encoder.encode(command))
        self.answer: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()


class CommandBatcher:
    """One way to the sequencers for commands that need the same level of the cluster, since all fail with one."""

    def __init__(self, sequencer: SequencerClient) -> None:
        self._sequencer = sequencer
        self._waiting: list[_Asked] = []
        self._sending: set[asyncio.Task[None]] = set()

    async def outcome(self, command: Command) -> Outcome:
        """What came of the command; raises as `SequencerClient.command` does, some seconds after it was given."""
        asked = _Asked(command)
        if not self._waiting:
            asyncio.get_running_loop().call_soon(self._send_waiting)
        self._waiting.append(asked)
        return await asked.answer

    async def close(self) -> None:
        """Send nothing more; who still waits is cancelled."""
        waiting, self._waiting = self._waiting, []
        for asked in waiting:
            asked.answer.cancel()
        sending = list(self._sending)
        for task in sending:
            task.cancel()
        await asyncio.gather(*sending, return_exceptions=True)

    def _send_waiting(self) -> None:
        waiting, self._waiting = self._waiting, []
        group: list[_Asked] = []
        group_bytes = 0
        for asked in waiting:
            if asked.answer.done():  # who asked is gone, and nothing was done yet
                continue
            if group and (len(group) >= COMMANDS_MAX or group_bytes + asked.size_bytes > MESSAGE_BYTES_MAX):
                self._begin(group)
                group, group_bytes = [], 0
            group.append(asked)
            group_bytes += asked.size_bytes
        if group:
            self._begin(group)

    def _begin(self, group: list[_Asked]) -> None:
        task = asyncio.get_running_loop().create_task(self._send(group))
        self._sending.add(task)
        task.add_done_callback(lambda done: self._sent(done, group))

    async def _send(self, group: list[_Asked]) -> None:
        commands = [asked.command for asked in group]
        outcomes = await self._sequencer.command(commands, deadline_s=COMMAND_DEADLINE_S)
        for asked, outcome in zip(group, outcomes, strict=True):
            if not asked.answer.done():
                asked.answer.set_result(outcome)

    def _sent(self, task: asyncio.Task[None], group: list[_Asked]) -> None:
        """Whoever has no outcome gets what the sending ended with."""
        self._sending.discard(task)
        error = None if task.cancelled() else task.exception()
        for asked in group:
            if asked.answer.done():
                continue
            if error is None:
                asked.answer.cancel()
            else:
                asked.answer.set_exception(error)
