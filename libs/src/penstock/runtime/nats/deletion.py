"""The deletion of a JetStream stream, for clusters that are deleted."""

from penstock.contracts.errors import Invalid
from penstock.runtime.nats.journal import Messages
from penstock.runtime.nats.stream import STREAM_NOT_FOUND, ConsumerReply, decode_reply, is_error

TIMEOUT_S = 5.0


async def delete_stream(messages: Messages, name: str) -> None:
    """Delete the stream; an absent stream counts as deleted. `Unavailable` if JetStream does not answer."""
    answer = await messages.exchange(f"$JS.API.STREAM.DELETE.{name}", b"", TIMEOUT_S)
    error = decode_reply(answer.data, ConsumerReply).error
    if error is not None and not is_error(error, STREAM_NOT_FOUND):
        raise Invalid(f"jetstream does not delete the stream {name}: {error.description}")
