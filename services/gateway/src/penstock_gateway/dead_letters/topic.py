"""Finds the topic for the dead letters of a group, and makes it if the cluster allows that."""

from typing import Protocol

from penstock.contracts.commands import Command, CreateTopic, Outcome, Rejected
from penstock.contracts.configs.share_groups import DEAD_LETTERS_ALLOWED, allows_dead_letters
from penstock.contracts.errors import Unavailable
from penstock.contracts.ids import ID_BYTES, new_topic_id
from penstock.contracts.queries.share import DeadLettersView
from penstock.contracts.queries.topics import TopicView
from penstock.contracts.rejections import Rejection, check_known
from penstock.runtime.clock import Clock, Entropy
from penstock_gateway.dead_letters.limits import DeadLetterLimits
from penstock_gateway.kafka.topic_cache import TopicCache

# The topic may be made later: the sequencers or their tables have no room now.
_LATER = (Rejection.OVERLOADED, Rejection.OUTCOME_UNKNOWN)


class Sequencers(Protocol):
    """The part of the sequencer client that makes topics."""

    async def command(self, commands: list[Command], *, deadline_s: float) -> list[Outcome]: ...


class DeadLetterTopics:
    """The topics for dead letters. As in Kafka, a topic must allow them, and its name must have the prefix."""

    def __init__(
        self,
        *,
        topics: TopicCache,
        sequencer: Sequencers,
        clock: Clock,
        entropy: Entropy,
        partitions: int,
        limits: DeadLetterLimits,
    ) -> None:
        """`partitions`: of a new topic."""
        self._topics = topics
        self._sequencer = sequencer
        self._clock = clock
        self._entropy = entropy
        self._partitions = partitions
        self._limits = limits

    async def find(self, view: DeadLettersView) -> TopicView | str:
        """The topic, or the reason why the group has no dead letters; `Unavailable` if it is not known now."""
        if not view.topic:
            return "the group has no topic for dead letters any more"
        if not view.topic.startswith(view.prefix):
            return f"the name of the topic {view.topic} does not begin with {view.prefix}"
        topic = await self._find(view.topic)
        if topic is None and not view.creates_topics:
            return f"the topic {view.topic} does not exist, and the cluster does not create it"
        if topic is None:
            reason = await self._create(view.topic)
            topic = await self._find(view.topic)
            if reason:
                return reason
        if topic is None:
            raise Unavailable("the topic for dead letters is not there yet")
        if not allows_dead_letters(topic.configs):
            return f"the topic {view.topic} has no {DEAD_LETTERS_ALLOWED}=true"
        return topic

    def remove(self, name: str) -> None:
        """Ask for the topic again: it may be deleted."""
        self._topics.remove([name])

    async def _find(self, name: str) -> TopicView | None:
        return (await self._topics.find([name])).get(name)

    async def _create(self, name: str) -> str:
        """Make the topic; the reason if that is rejected for good."""
        command = CreateTopic(
            now_ms=self._clock.now_ms(),
            name=name,
            topic_id=new_topic_id(self._entropy.take(ID_BYTES)),
            partitions=self._partitions,
            configs={DEAD_LETTERS_ALLOWED: "true"},
        )
        (outcome,) = await self._sequencer.command([command], deadline_s=self._limits.command_deadline_s)
        self._topics.remove([name])
        if not isinstance(outcome, Rejected) or outcome.rejection == Rejection.TOPIC_EXISTS:
            return ""
        if outcome.rejection in _LATER:
            raise Unavailable(f"the topic for dead letters is not created: {outcome.message}")
        check_known(outcome.rejection)  # one of a newer release may pass
        return f"the topic {name} cannot be created: {outcome.message or outcome.rejection.name.lower()}"
