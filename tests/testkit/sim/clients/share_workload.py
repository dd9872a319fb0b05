"""A share group on the topics of other clients: its members, its configs, and the final checks."""

from typing import TYPE_CHECKING

from penstock.contracts.commands import AlterGroupConfigs, Command, ConfigChange, ConfigOperation, CreateTopic
from penstock.contracts.configs.groups import (
    DURATION_RESET,
    EARLIEST_RESET,
    READ_COMMITTED,
    SHARE_AUTO_OFFSET_RESET,
    SHARE_DELIVERY_LIMIT,
    SHARE_HEARTBEAT_INTERVAL,
    SHARE_ISOLATION_LEVEL,
    SHARE_LOCK_DURATION,
    SHARE_SESSION_TIMEOUT,
)
from penstock.contracts.configs.share_groups import (
    DEAD_LETTER_COPY,
    DEAD_LETTER_TOPIC,
    DEAD_LETTERS_ALLOWED,
    REDELIVERY_DELAY,
)
from penstock.contracts.ids import ID_BYTES, new_topic_id
from tests.testkit.sim.checkers.share_group_checker import ShareGroupChecker
from tests.testkit.sim.clients import transaction_workload
from tests.testkit.sim.clients.share_member import ShareMember

if TYPE_CHECKING:
    from tests.testkit.sim.world import World

STREAM = "share-group"
SHARE = 0.125  # of runs without an upgrade
GROUP = "sharers"
MEMBERS = (2, 2, 3)
LOCK_MS = 1_000
SESSION_TIMEOUT_MS = 3_000
HEARTBEAT_MS = 1_000
DELIVERY_LIMITS = (2, 5, 5)
DELAYS_MS = (0, 0, 700)  # of the redelivery of released records
DEAD_LETTERS_SHARE = 0.5  # of runs with a share group
# A group that begins at a time begins at the first record, too, because no record is so old.
RESETS = (EARLIEST_RESET, f"{DURATION_RESET}P1D")
LETTERS, LETTERS_PARTITIONS = "dlq.sharers", 2


class ShareWorkload:
    """The share group of a run; most runs have none."""

    def __init__(self, world: "World", topic: str) -> None:
        dice = world.stream(STREAM)
        self.is_wanted = dice.random() < SHARE and not world.old_replicas
        self.members: list[ShareMember] = []
        self._world = world
        self._topics = {topic: world.partitions}
        if world.transactions.is_wanted:
            self._topics[transaction_workload.TOPIC] = world.transactions.partitions
        self._count = dice.choice(MEMBERS)
        self._delivery_limit = dice.choice(DELIVERY_LIMITS)
        self._is_committed = dice.random() < 0.5
        self.checker = ShareGroupChecker(GROUP, world.oracle, LOCK_MS, self._delivery_limit, world.fail)
        self.checker.delay_ms = dice.choice(DELAYS_MS)
        self.checker.has_dead_letters = dice.random() < DEAD_LETTERS_SHARE and self.is_wanted
        self._copies_records = dice.random() < 0.5
        self._reset = dice.choice(RESETS)
        if self.is_wanted:
            world.oracle.on_applied.append(self.checker.applied)

    def group_configs(self, now_ms: int) -> list[Command]:
        """The commands that set the configs of the group before its members join."""
        rules = {
            SHARE_AUTO_OFFSET_RESET: self._reset,
            SHARE_LOCK_DURATION: str(LOCK_MS),
            SHARE_SESSION_TIMEOUT: str(SESSION_TIMEOUT_MS),
            SHARE_HEARTBEAT_INTERVAL: str(HEARTBEAT_MS),
            SHARE_DELIVERY_LIMIT: str(self._delivery_limit),
            REDELIVERY_DELAY: str(self.checker.delay_ms),
        } | ({SHARE_ISOLATION_LEVEL: READ_COMMITTED} if self._is_committed else {})
        commands: list[Command] = []
        if self.checker.has_dead_letters:
            rules |= {DEAD_LETTER_TOPIC: LETTERS, DEAD_LETTER_COPY: str(self._copies_records).lower()}
            topic_id = new_topic_id(LETTERS.encode().ljust(ID_BYTES))
            commands.append(CreateTopic(now_ms, LETTERS, topic_id, LETTERS_PARTITIONS, {DEAD_LETTERS_ALLOWED: "true"}))
        changes = [ConfigChange(name, ConfigOperation.SET, value) for name, value in rules.items()]
        return [*commands, AlterGroupConfigs(now_ms, GROUP, changes)] if self.is_wanted else []

    def begin(self) -> None:
        """Start the members."""
        world = self._world
        for number in range(self._count if self.is_wanted else 0):
            client = world.client(f"sharer-{number}")
            member = ShareMember(client, world.oracle, self.checker, GROUP, list(self._topics))
            self.members.append(member)
            world.spawn(member.run())

    def finish_soon(self) -> None:
        """Let members accept all records, and have no accidents."""
        for member in self.members:
            member.only_accepts = True

    @property
    def is_done(self) -> bool:
        """Whether all records were accepted, rejected, or delivered as often as allowed, and the dead ones are written.

        Then each dead record must have a dead letter, and no other record.
        """
        if any(offset >= 0 for offset in self._unsettled().values()):
            return False
        return not self.checker.has_dead_letters or self.checker.are_letters_written(LETTERS)

    def _unsettled(self) -> dict[str, int]:
        return {
            f"{topic}-{number}": self.checker.first_unsettled(topic, number, is_committed=self._is_committed)
            for topic, count in self._topics.items()
            for number in range(count if self.is_wanted else 0)
        }

    def explain(self) -> None:
        """Fail with the records that are never done."""
        for name, offset in self._unsettled().items():
            if offset >= 0:
                self._world.fail(f"group {GROUP} never ends {name} at {offset}")
        missing = self.checker.missing_letters(LETTERS) if self.is_wanted and self.checker.has_dead_letters else []
        for name in missing:
            self._world.fail(f"group {GROUP} has no dead letter of {name}")

    def counts(self) -> dict[str, int]:
        """Counts of events that some runs do not have."""
        return {
            "records acknowledged by a share group": self.checker.acknowledged,
            "records redelivered": self.checker.redelivered,
            "records with dead letters": len(self.checker.dead),
            "deaths, leaves and stalls of share group members": sum(each.accidents for each in self.members),
        }
