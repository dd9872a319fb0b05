"""Sends the commands of many clients to the sequencers in few messages.

The commands of one iteration of the event loop are sent together and become part of one journal entry. So clients that
end their transactions at the same time cost one request and one answer. No command waits for others: a single command
is sent alone, at the end of its iteration.
"""

import asyncio

import msgspec

from penstock.contracts.commands import Command, Outcome
from penstock.runtime.bus.sequencer_client import SequencerClient

COMMANDS_MAX = 256  # in one message: some milliseconds of a sequencer's time
MESSAGE_BYTES_MAX = 64 * 1024  # of commands in one message; a larger command is sent alone, so others never fail for it
COMMAND_DEADLINE_S = 10.0

_encoder = msgspec.msgpack.Encoder()


class _PendingCommand:
    """One command, and the future for its outcome and the journal sequence of that."""

    __slots__ = ("answer", "command", "size_bytes")

    def __init__(self, command: Command) -> None:
        self.command = command
        self.size_bytes = len(_encoder.encode(command))
        self.answer: asyncio.Future[tuple[Outcome, int]] = asyncio.get_running_loop().create_future()


class CommandBatcher:
    """Batches commands that need the same level of the cluster, because one without it fails all of its message."""

    def __init__(self, sequencer: SequencerClient) -> None:
        self._sequencer = sequencer
        self._waiting: list[_PendingCommand] = []
        self._sending: set[asyncio.Task[None]] = set()

    async def outcome(self, command: Command) -> tuple[Outcome, int]:
        """The outcome of the command, and its journal sequence.

        It raises as `SequencerClient.command` does, some seconds later.
        """
        pending = _PendingCommand(command)
        if not self._waiting:
            asyncio.get_running_loop().call_soon(self._send_waiting)
        self._waiting.append(pending)
        return await pending.answer

    async def close(self) -> None:
        """Send nothing more, and cancel the waiting commands."""
        waiting, self._waiting = self._waiting, []
        for pending in waiting:
            pending.answer.cancel()
        sending = list(self._sending)
        for task in sending:
            task.cancel()
        await asyncio.gather(*sending, return_exceptions=True)

    def _send_waiting(self) -> None:
        waiting, self._waiting = self._waiting, []
        group: list[_PendingCommand] = []
        group_bytes = 0
        for pending in waiting:
            if pending.answer.done():  # the caller is gone, and the command was not sent
                continue
            if group and (len(group) >= COMMANDS_MAX or group_bytes + pending.size_bytes > MESSAGE_BYTES_MAX):
                self._begin(group)
                group, group_bytes = [], 0
            group.append(pending)
            group_bytes += pending.size_bytes
        if group:
            self._begin(group)

    def _begin(self, group: list[_PendingCommand]) -> None:
        task = asyncio.get_running_loop().create_task(self._send(group))
        self._sending.add(task)
        task.add_done_callback(lambda done: self._sent(done, group))

    async def _send(self, group: list[_PendingCommand]) -> None:
        commands = [pending.command for pending in group]
        reply = await self._sequencer.command_reply(commands, deadline_s=COMMAND_DEADLINE_S)
        for pending, outcome in zip(group, reply.outcomes, strict=True):
            if not pending.answer.done():
                pending.answer.set_result((outcome, reply.sequence))

    def _sent(self, task: asyncio.Task[None], group: list[_PendingCommand]) -> None:
        """Cancel the commands without an outcome, or fail them with the error of the sending."""
        self._sending.discard(task)
        error = None if task.cancelled() else task.exception()
        for pending in group:
            if pending.answer.done():
                continue
            if error is None:
                pending.answer.cancel()
            else:
                pending.answer.set_exception(error)
