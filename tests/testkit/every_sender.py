"""A client of the sequencers that sends each command as the kind of process which sends it in a cluster."""

from collections.abc import Sequence

from penstock.contracts.commands import Command, CommandReply
from penstock.contracts.senders import COMMANDS
from penstock.contracts.subjects import Sender
from penstock.runtime.bus.sequencer_client import SequencerClient


def sender_of(commands: Sequence[Command]) -> Sender:
    """The first kind of sender that may send all of these commands; `CLIENT` if there is none."""
    found = (sender for sender, allowed in COMMANDS.items() if all(type(each) in allowed for each in commands))
    return next(found, Sender.CLIENT)


class EverySender(SequencerClient):
    """All kinds of senders as one."""

    async def command_reply(
        self, commands: list[Command], *, deadline_s: float, attempt_s: float | None = None
    ) -> CommandReply:
        """As `SequencerClient.command_reply`, on the subject of the first sender that may send these commands."""
        self.sender = sender_of(commands)
        return await super().command_reply(commands, deadline_s=deadline_s, attempt_s=attempt_s)
