"""A client of the sequencers that sends each command as the kind of process which sends it in a cluster."""

from collections.abc import Iterator, Sequence

import msgspec

from penstock.contracts.commands import Command, CommandReply, Outcome
from penstock.contracts.senders import COMMANDS
from penstock.contracts.subjects import Sender
from penstock.runtime.bus.sequencer_client import SequencerClient


def sender_of(commands: Sequence[Command]) -> Sender | None:
    """The first kind of sender that may send all of these commands, if there is one."""
    found = (sender for sender, allowed in COMMANDS.items() if all(type(each) in allowed for each in commands))
    return next(found, None)


class EverySender(SequencerClient):
    """All kinds of senders as one."""

    async def command_reply(
        self, commands: list[Command], *, deadline_s: float, attempt_s: float | None = None, trace: str = ""
    ) -> CommandReply:
        """As `SequencerClient.command_reply`; commands that no sender may send together become several entries."""
        outcomes: list[Outcome] = []
        for some in _of_one_sender(commands):
            self.sender = sender_of(some) or Sender.CLIENT
            reply = await super().command_reply(some, deadline_s=deadline_s, attempt_s=attempt_s, trace=trace)
            outcomes += reply.outcomes
        return msgspec.structs.replace(reply, outcomes=outcomes)


def _of_one_sender(commands: list[Command]) -> Iterator[list[Command]]:
    some: list[Command] = []
    for command in commands:
        if some and sender_of([*some, command]) is None:
            yield some
            some = []
        some.append(command)
    yield some
