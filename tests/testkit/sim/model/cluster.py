"""The model of the whole cluster: it takes each journal entry's commands with their outcomes.

An accepted command must be allowed by Kafka's rules, and changes the model. A rejected one changes nothing. The
model reports a reason that it knows to be untrue. It does not know all reasons, such as limits.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from penstock.contracts import commands as c
from penstock.contracts.batches import BatchMeta
from penstock.contracts.configs.topics import FOR_EVER, undelete_window_ms
from penstock.contracts.ids import SegmentId, TopicId
from penstock.contracts.levels import COMMIT_LEASE_LEVEL, JANITOR_LEVEL, SHARES_LEVEL
from penstock.contracts.rejections import Rejection
from tests.testkit.sim.model.groups import NO_OFFSET, ModelGroup
from tests.testkit.sim.model.logs import ModelLog, Offsets
from tests.testkit.sim.model.past import Past
from tests.testkit.sim.model.security import SecurityCommands
from tests.testkit.sim.model.tokens import TokenCommands
from tests.testkit.sim.model.topics import ModelTopic, altered
from tests.testkit.sim.model.transaction_commands import TransactionCommands
from tests.testkit.sim.model.transactions import ModelTransaction

RETENTION_NAME = "log.retention.ms"
CLOCK_MS_MAX = 2**48 - 1  # a later time is from a broken clock
STALE_MAX = 20  # commits of a segment; a flusher that needs more of them commits again without end

Fail = Callable[[str], None]


class Model:
    """The state of the cluster after the entries that were taken so far."""

    def __init__(self, fail: Fail) -> None:
        self.sequence = 0
        self.clock_ms = 0
        self.level = 0
        self.topics: dict[str, ModelTopic] = {}
        self.deleted: dict[TopicId, ModelTopic] = {}  # may come back
        self.topic_ids: dict[str, Past[TopicId | None]] = {}  # by name; None while there is no such topic
        self.cluster_configs: dict[str, str] = {}
        self.group_configs: dict[str, dict[str, str]] = {}
        self.client_metrics: dict[str, dict[str, str]] = {}
        self.groups: dict[str, ModelGroup] = {}
        self.transactions: dict[str, ModelTransaction] = {}
        self.producer_ids: dict[int, None] = {}
        self.transaction_commands = TransactionCommands(self)
        self.security = SecurityCommands(self)
        self.tokens = TokenCommands(self)
        self._fail = fail
        self._segments: dict[SegmentId, c.SegmentCommitted] = {}
        self._stale: dict[SegmentId, int] = {}  # commits whose lease had ended
        self._changed: dict[int, ModelLog] = {}
        self._take: dict[type[Any], Callable[[Any, Any], None]] = {
            c.CreateTopic: self._create_topic,
            c.DeleteTopic: self._delete_topic,
            c.UndeleteTopic: self._undelete_topic,
            c.CreatePartitions: self._create_partitions,
            c.AlterConfigs: self._alter_configs,
            c.AlterGroupConfigs: self._alter_group_configs,
            c.AlterClientMetrics: self._alter_client_metrics,
            c.CommitSegment: self._commit_segment,
            c.DeleteRecords: self._delete_records,
            c.ExpireLogs: self._expire_logs,
            c.AllocateProducer: self._allocate_producer,
            c.CommitOffsets: self._commit_offsets,
            c.DeleteOffsets: self._delete_offsets,
            c.DeleteGroup: self._delete_group,
            c.JoinGroup: self._join_group,
            c.LeaveGroup: self._leave_group,
            c.ConsumerHeartbeat: self._consumer_heartbeat,
            c.RaiseLevel: self._raise_level,
        }
        self._take |= self.transaction_commands.by_class | self.security.by_class | self.tokens.by_class

    def apply(self, sequence: int, commands: Sequence[c.Command], outcomes: Sequence[c.Outcome]) -> None:
        """Take an entry."""
        self.sequence = sequence
        for command, outcome in zip(commands, outcomes, strict=True):
            if command.now_ms <= CLOCK_MS_MAX:
                self.clock_ms = max(self.clock_ms, command.now_ms)
            if type(command) is c.Tick:
                self.tokens.remove_old()
            take = self._take.get(type(command))
            if take is not None:
                take(command, outcome)
            for log in self._changed.values():
                log.past.set(sequence, log.offsets)
            self._changed.clear()

    def wrong(self, command: object, why: str) -> None:
        """Report an outcome that Kafka's rules do not allow; nothing if `why` is empty."""
        if why:
            self._fail(f"the model: {type(command).__name__} in entry {self.sequence}: {why}")

    def changed(self, log: ModelLog) -> ModelLog:
        """Note that an entry changes a log, before it does."""
        self._changed[id(log)] = log
        return log

    def topic(self, topic_id: TopicId) -> ModelTopic | None:
        """The topic with this id, if it is not deleted."""
        return next((each for each in self.topics.values() if each.topic_id == topic_id), None)

    def log(self, topic_id: TopicId, partition: int) -> ModelLog | None:
        """A log, also of a deleted topic that may come back."""
        topic = self.topic(topic_id) or self.deleted.get(topic_id)
        return topic.logs[partition] if topic is not None and 0 <= partition < len(topic.logs) else None

    def group(self, group_id: str) -> ModelGroup:
        """A group, which is made by its first use."""
        return self.groups.setdefault(group_id, ModelGroup())

    def all_logs(self) -> Iterator[tuple[TopicId, int, ModelLog]]:
        """All logs of topics that exist."""
        for topic in self.topics.values():
            for number, log in enumerate(topic.logs):
                yield topic.topic_id, number, log

    def new_producer_id(self, command: object, producer_id: int) -> None:
        """Take an allocated id, which no producer has had."""
        if producer_id in self.producer_ids:
            self.wrong(command, f"producer id {producer_id} was allocated before")
        self.producer_ids[producer_id] = None

    def _set_topic(self, name: str, topic: ModelTopic | None) -> None:
        topic_id = None if topic is None else topic.topic_id
        self.topic_ids.setdefault(name, Past(None)).set(self.sequence, topic_id)
        if topic is None:
            del self.topics[name]
        else:
            self.topics[name] = topic

    def _create_topic(self, command: c.CreateTopic, outcome: c.Outcome) -> None:
        existing = self.topics.get(command.name)
        if isinstance(outcome, c.Rejected):
            if outcome.rejection is Rejection.TOPIC_EXISTS and existing is None:
                self.wrong(command, f"{command.name} does not exist")
            return
        if existing is not None:
            self.wrong(command, "" if existing.topic_id == command.topic_id else f"{command.name} exists already")
            return
        count = 1 if command.partitions == -1 else command.partitions
        logs = [ModelLog() for _ in range(count)]
        self._set_topic(command.name, ModelTopic(command.name, command.topic_id, logs, dict(command.configs)))

    def _delete_topic(self, command: c.DeleteTopic, outcome: c.Outcome) -> None:
        topic = self.topics.get(command.name) if command.name else self.topic(command.topic_id)
        if isinstance(outcome, c.Rejected):
            if outcome.rejection is Rejection.UNKNOWN_TOPIC and topic is not None:
                self.wrong(command, f"{topic.name} exists")
            return
        if topic is None:
            self.wrong(command, f"{command.name} does not exist" if command.name else "")  # an id may be sent again
            return
        for group_id, group in self.groups.items():
            for key, offset in group.committed().items():
                if key[0] == topic.topic_id:
                    topic.lost_offsets[group_id, key[1]] = (offset, group.sent[key])
                    group.remove(key, self.sequence)
        self._set_topic(topic.name, None)
        if self.level >= JANITOR_LEVEL and undelete_window_ms(topic.configs, self.cluster_configs):
            self.deleted[topic.topic_id] = topic

    def _undelete_topic(self, command: c.UndeleteTopic, outcome: c.Outcome) -> None:
        if isinstance(outcome, c.Rejected) or self.topic(command.topic_id) is not None:
            return
        assert isinstance(outcome, c.TopicCreated)
        topic = self.deleted.pop(outcome.topic_id, None)
        if topic is None or topic.name in self.topics:
            self.wrong(command, "this topic cannot come back")
            return
        self._set_topic(topic.name, topic)
        for (group_id, number), (offset, sent) in topic.lost_offsets.items():
            self.group(group_id).commit((topic.topic_id, number), offset, self.sequence, sent)
        topic.lost_offsets.clear()

    def _create_partitions(self, command: c.CreatePartitions, outcome: c.Outcome) -> None:
        topic = self.topics.get(command.name)
        if isinstance(outcome, c.Rejected):
            return
        if topic is None or command.count <= len(topic.logs):
            self.wrong(command, f"{command.name} cannot grow to {command.count} partitions")
            return
        topic.logs += [ModelLog() for _ in range(command.count - len(topic.logs))]

    def _alter_configs(self, command: c.AlterConfigs, outcome: c.Outcome) -> None:
        if isinstance(outcome, c.Rejected):
            return
        topic = self.topics.get(command.topic)
        if topic is not None:
            topic.configs = altered(topic.configs, command)
        elif command.topic:
            self.wrong(command, f"{command.topic} does not exist")
        else:
            self.cluster_configs = altered(self.cluster_configs, command)

    def _alter_group_configs(self, command: c.AlterGroupConfigs, outcome: c.Outcome) -> None:
        if not isinstance(outcome, c.Rejected):
            configs = altered(self.group_configs.pop(command.group_id, {}), command)
            if configs:
                self.group_configs[command.group_id] = configs

    def _alter_client_metrics(self, command: c.AlterClientMetrics, outcome: c.Outcome) -> None:
        if not isinstance(outcome, c.Rejected):
            configs = altered(self.client_metrics.pop(command.name, {}), command)
            if configs:
                self.client_metrics[command.name] = configs

    def _commit_segment(self, command: c.CommitSegment, outcome: c.Outcome) -> None:
        """Append all accepted batches; a segment that comes again gets the first answer again, and adds nothing."""
        if not isinstance(outcome, c.SegmentCommitted):
            self._count_stale(command, outcome)
            return
        first = self._segments.setdefault(command.segment_id, outcome)
        if first is not outcome:
            self.wrong(command, "" if first == outcome else "the segment got another answer when it came again")
            return
        if 0 < command.not_after_ms < self.clock_ms and self.level >= COMMIT_LEASE_LEVEL:
            self.wrong(command, f"its lease ended {self.clock_ms - command.not_after_ms} ms ago")
        for run, results in zip(command.runs, outcome.runs, strict=True):
            topic = self.topic(run.topic_id)
            log = None if topic is None else self.log(run.topic_id, run.partition)
            for meta, result in zip(run.batches, results, strict=True):
                where = f"{run.topic_id.hex()}-{run.partition}: a batch of producer {meta.producer_id}: "
                if log is None:
                    self.wrong(command, "" if result.rejection else where + "there is no such partition")
                    continue
                why = self.transaction_commands.wrong_batch(run, meta, result)
                why = why or self.changed(log).append(meta, result, self._sender(command, meta))
                self.wrong(command, why and where + why)

    def _sender(self, command: c.CommitSegment, meta: BatchMeta) -> str:
        return command.principals[meta.principal - 1] if meta.principal and self.level >= SHARES_LEVEL else ""

    def _count_stale(self, command: c.CommitSegment, outcome: c.Outcome) -> None:
        """A flusher asks for a new lease after each stale commit, so a later commit is in time."""
        if isinstance(outcome, c.Rejected) and outcome.rejection is Rejection.STALE:
            count = self._stale[command.segment_id] = self._stale.get(command.segment_id, 0) + 1
            self.wrong(command, "" if count <= STALE_MAX else f"the segment was stale {count} times")

    def _delete_records(self, command: c.DeleteRecords, outcome: c.Outcome) -> None:
        if not isinstance(outcome, c.LogsTrimmed):
            return
        for wanted, result in zip(command.logs, outcome.logs, strict=True):
            log = self._trimmed(command, wanted.topic_id, wanted.partition, result)
            if log is not None:
                start = log.end if wanted.offset == c.TO_HIGH_WATERMARK else wanted.offset
                if start > log.end:
                    self.wrong(command, f"offset {start} is after the end {log.end}")
                log.start = max(log.start, min(start, log.end))
                self._compare_start(command, log, result)

    def _expire_logs(self, command: c.ExpireLogs, outcome: c.Outcome) -> None:
        """Take the new starts; `DeletionChecker` decides whether records were old enough."""
        if not isinstance(outcome, c.LogsTrimmed):
            return
        for wanted, result in zip(command.logs, outcome.logs, strict=True):
            log = self._trimmed(command, wanted.topic_id, wanted.partition, result)
            if log is not None and result.log_start_offset > log.start:
                if result.log_start_offset > log.offsets.stable:
                    self.wrong(command, f"the log starts at {result.log_start_offset}, which is not stable")
                log.start = result.log_start_offset
            if log is not None:
                self._compare_start(command, log, result)

    def _trimmed(self, command: object, topic_id: TopicId, partition: int, result: c.LogTrimmed) -> ModelLog | None:
        log = self.log(topic_id, partition) if self.topic(topic_id) is not None else None
        if result.rejection is not Rejection.NONE:
            return None
        if log is None:
            self.wrong(command, "there is no such partition")
            return None
        return self.changed(log)

    def _compare_start(self, command: object, log: ModelLog, result: c.LogTrimmed) -> None:
        if result.log_start_offset != log.start:
            self.wrong(command, f"the log starts at {log.start}, the outcome is {result.log_start_offset}")

    def _allocate_producer(self, command: c.AllocateProducer, outcome: c.Outcome) -> None:
        if isinstance(outcome, c.ProducerAllocated):
            self.new_producer_id(command, outcome.producer_id)

    def _commit_offsets(self, command: c.CommitOffsets, outcome: c.Outcome) -> None:
        if not isinstance(outcome, c.PerItem):
            return
        group = self.group(command.group_id)
        self.wrong(command, group.wrong_commit(command.generation, command.member_id))
        for item, rejection in zip(command.offsets, outcome.rejections, strict=True):
            topic = self.topics.get(item.topic)
            is_there = topic is not None and 0 <= item.partition < len(topic.logs)
            if rejection is Rejection.NONE and topic is not None and is_there:
                group.commit((topic.topic_id, item.partition), item.offset, self.sequence, self.sequence)
            elif (rejection is Rejection.NONE) != is_there and rejection in (Rejection.NONE, Rejection.UNKNOWN_TOPIC):
                self.wrong(command, f"{item.topic}-{item.partition} was answered with {rejection.name}")

    def _delete_offsets(self, command: c.DeleteOffsets, outcome: c.Outcome) -> None:
        if not isinstance(outcome, c.PerItem):
            return
        for item, rejection in zip(command.offsets, outcome.rejections, strict=True):
            topic = self.topics.get(item.topic)
            if rejection is Rejection.NONE and topic is not None:
                self.group(command.group_id).remove((topic.topic_id, item.partition), self.sequence)

    def _delete_group(self, command: c.DeleteGroup, outcome: c.Outcome) -> None:
        if isinstance(outcome, c.Done):
            group = self.group(command.group_id)
            for key in group.committed():
                group.remove(key, self.sequence)
            for topic in self.deleted.values():
                for lost in [each for each in topic.lost_offsets if each[0] == command.group_id]:
                    del topic.lost_offsets[lost]

    def _join_group(self, command: c.JoinGroup, outcome: c.Outcome) -> None:
        if isinstance(outcome, c.Joined | c.Waiting):
            self.group(command.group_id).join(command, outcome.generation, self.clock_ms)

    def _leave_group(self, command: c.LeaveGroup, outcome: c.Outcome) -> None:
        if isinstance(outcome, c.PerItem):
            self.group(command.group_id).leave(command, outcome.rejections)

    def _consumer_heartbeat(self, command: c.ConsumerHeartbeat, outcome: c.Outcome) -> None:
        if isinstance(outcome, c.Rejected):
            return
        group = self.group(command.group_id)
        if command.member_epoch == c.LEAVE_EPOCH:
            # A repeated leave that comes late may be without effect.
            if not 0 <= command.seen_sequence < group.joined.get(command.member_id, 0):
                group.members.pop(command.member_id, None)
        else:
            group.members[command.member_id] = None
            if command.member_epoch == c.JOIN_EPOCH:
                group.joined[command.member_id] = self.sequence

    def _raise_level(self, command: c.RaiseLevel, outcome: c.Outcome) -> None:
        """Raise the level. A cluster that had records before there was retention keeps them for ever."""
        has_records = any(log.end > log.start for _, _, log in self.all_logs())
        if self.level < JANITOR_LEVEL <= command.level and not command.is_new and has_records:
            self.cluster_configs = {RETENTION_NAME: str(FOR_EVER), **self.cluster_configs}
        self.level = max(self.level, command.level)


def offsets_of(model: Model) -> dict[tuple[TopicId, int], Offsets]:
    """The offsets of all logs."""
    return {(topic_id, number): log.offsets for topic_id, number, log in model.all_logs()}


def committed_of(model: Model) -> dict[tuple[str, TopicId, int], int]:
    """All committed offsets."""
    return {
        (group_id, *key): offset
        for group_id, group in model.groups.items()
        for key, offset in group.committed().items()
    }


__all__ = ["NO_OFFSET", "Model", "committed_of", "offsets_of"]
