"""Compares the answers to clients with the independent model, between question and answer.

The model knows each value that was true at each journal entry. A correct answer was true at some entry since the
question. Without an answer, a request may have happened or not.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

from penstock.kafkawire.error_codes import ErrorCode
from tests.testkit.sim.checkers.oracle import Fail
from tests.testkit.sim.checkers.security_answers import SecurityAnswers
from tests.testkit.sim.clients.kafka import (
    CREATE_TOPICS,
    DELETE_RECORDS,
    DELETE_TOPICS,
    END_TXN,
    FETCH,
    INIT_PRODUCER_ID,
    JOIN_GROUP,
    LIST_OFFSETS,
    OFFSET_COMMIT,
    OFFSET_FETCH,
    SYNC_GROUP,
    Witness,
)
from tests.testkit.sim.model.cluster import Model
from tests.testkit.sim.model.groups import NO_OFFSET
from tests.testkit.sim.model.logs import ModelLog, Offsets

LATEST, EARLIEST = -1, -2
READ_COMMITTED = 1

Span = tuple[int, int]  # the newest entries at question and answer


class AnswerJudge(Witness):
    """Checks each answer that a client receives."""

    def __init__(self, model: Model, fail: Fail) -> None:
        self.judged: dict[int, int] = defaultdict(int)  # answers by API
        self._model = model
        self._fail = fail
        self._leaders: dict[tuple[str, int, int], str] = {}  # by group, its life, and generation
        self._assignments: dict[tuple[str, int, int], list[dict[str, bytes]]] = defaultdict(list)  # that leaders sent
        self._producers: dict[int, str] = {}  # producer id -> the client that got it, for ids without transactions
        self._judges: dict[int, Callable[[str, Any, Any, Span], None]] = {
            CREATE_TOPICS: self._created,
            DELETE_TOPICS: self._deleted,
            DELETE_RECORDS: self._records_deleted,
            LIST_OFFSETS: self._offsets_listed,
            FETCH: self._fetched,
            OFFSET_COMMIT: self._offsets_committed,
            OFFSET_FETCH: self._offsets_fetched,
            INIT_PRODUCER_ID: self._producer_begun,
            END_TXN: self._transaction_ended,
            JOIN_GROUP: self._joined,
            SYNC_GROUP: self._synced,
        } | SecurityAnswers(model.security, self._wrong).by_api

    @property
    def apis(self) -> list[int]:
        """The APIs whose answers are checked."""
        return list(self._judges)

    def asked(self, api_key: int, request: Any) -> int:
        """Take a request; the newest entry now."""
        if api_key == SYNC_GROUP and request.assignments:
            sent = {each.member_id: bytes(each.assignment) for each in request.assignments}
            self._assignments[self._generation(request.group_id, request.generation_id)].append(sent)
        return self._model.sequence

    def answered(self, client: str, api_key: int, request: Any, answer: Any, asked_at: int) -> None:
        """Check an answer."""
        judge = self._judges.get(api_key)
        if judge is not None:
            self.judged[api_key] += 1
            judge(client, request, answer, (asked_at, self._model.sequence))

    def _wrong(self, client: str, what: str) -> None:
        self._fail(f"{client}: the model does not explain the answer: {what}")

    def _log(self, topic: str, partition: int) -> ModelLog | None:
        found = self._model.topics.get(topic)
        return found.logs[partition] if found is not None and 0 <= partition < len(found.logs) else None

    def _topic_ids(self, name: str, span: Span) -> list[bytes | None]:
        past = self._model.topic_ids.get(name)
        return [None] if past is None else list(past.during(*span))

    def _created(self, client: str, request: Any, answer: Any, span: Span) -> None:
        for each in answer.topics:
            was_there = any(self._topic_ids(each.name, span))
            if each.error_code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS) and not was_there:
                self._wrong(client, f"topic {each.name} was {ErrorCode(each.error_code).name}, and did not exist")

    def _deleted(self, client: str, request: Any, answer: Any, span: Span) -> None:
        for each in answer.responses:
            if not each.error_code and None not in self._topic_ids(each.name, span):
                self._wrong(client, f"topic {each.name} was deleted, and existed all the time")

    def _records_deleted(self, client: str, request: Any, answer: Any, span: Span) -> None:
        for topic in answer.topics:
            for each in topic.partitions:
                log = self._log(topic.name, each.partition_index)
                if not each.error_code and log is not None:
                    self._check(client, "a low watermark", each.low_watermark, log, span, lambda offsets: offsets.start)

    def _offsets_listed(self, client: str, request: Any, answer: Any, span: Span) -> None:
        is_stable = request.isolation_level == READ_COMMITTED
        asked = {(one.name, each.partition_index): each.timestamp for one in request.topics for each in one.partitions}
        for topic in answer.topics:
            for each in topic.partitions:
                log, when = self._log(topic.name, each.partition_index), asked[topic.name, each.partition_index]
                if each.error_code or log is None or when not in (LATEST, EARLIEST):
                    continue
                if when == EARLIEST:
                    self._check(client, "a start", each.offset, log, span, lambda offsets: offsets.start)
                elif is_stable:
                    self._check(client, "a stable end", each.offset, log, span, lambda offsets: offsets.stable)
                else:
                    self._check(client, "an end", each.offset, log, span, lambda offsets: offsets.end)

    def _check(
        self, client: str, what: str, found: int, log: ModelLog, span: Span, pick: Callable[[Offsets], int]
    ) -> None:
        true = [pick(offsets) for offsets in log.past.during(*span)]
        if found not in true:
            self._wrong(client, f"{what} of {found}, it was {true}")

    def _fetched(self, client: str, request: Any, answer: Any, span: Span) -> None:
        """A gateway may know less than the journal, never more. Readers need every aborted transaction."""
        for topic in answer.responses:
            for each in topic.partitions:
                log = self._log(topic.topic, each.partition_index)
                if each.error_code or log is None:
                    continue
                where, now = f"{topic.topic}-{each.partition_index}", log.offsets
                if each.high_watermark > now.end or each.last_stable_offset > now.stable:
                    self._wrong(client, f"{where} ends at {each.high_watermark}, {each.last_stable_offset}; {now}")
                true = {(aborted.producer_id, aborted.first_offset) for aborted in log.aborted}
                for aborted in each.aborted_transactions or ():
                    if (aborted.producer_id, aborted.first_offset) not in true:
                        self._wrong(client, f"{where} has no aborted transaction {aborted}")

    def _offsets_committed(self, client: str, request: Any, answer: Any, span: Span) -> None:
        wanted = {(one.name, each.partition_index): each for one in request.topics for each in one.partitions}
        for topic in answer.topics:
            for each in topic.partitions:
                offset = wanted[topic.name, each.partition_index].committed_offset
                true = self._committed(request.group_id, topic.name, each.partition_index, span)
                if not each.error_code and true is not None and offset not in true:
                    self._wrong(client, f"the commit of {topic.name}-{each.partition_index} {offset}, it was {true}")

    def _committed(self, group_id: str, topic: str, partition: int, span: Span) -> list[int] | None:
        found = self._model.topics.get(topic)
        if found is None:
            return None
        return self._model.group(group_id).offset((found.topic_id, partition)).during(*span)

    def _offsets_fetched(self, client: str, request: Any, answer: Any, span: Span) -> None:
        for group_id, topics in _fetched_offsets(request, answer):
            for topic in topics:
                for each in topic.partitions:
                    true = self._committed(group_id, topic.name, each.partition_index, span)
                    if not each.error_code and true is not None and each.committed_offset not in true:
                        what = f"offset {each.committed_offset} of {group_id} in {topic.name}-{each.partition_index}"
                        self._wrong(client, f"{what}, it was {true}; {NO_OFFSET} is none")

    def _producer_begun(self, client: str, request: Any, answer: Any, span: Span) -> None:
        if answer.error_code:
            return
        if request.transactional_id is None:
            first = self._producers.setdefault(answer.producer_id, client)
            if answer.producer_id not in self._model.producer_ids or first != client:
                self._wrong(client, f"producer id {answer.producer_id}, which {first} has")
            return
        transaction = self._model.transactions.get(request.transactional_id)
        given = (answer.producer_id, answer.producer_epoch)
        if transaction is None or given > transaction.producer:
            self._wrong(client, f"{request.transactional_id} has no producer {given}")

    def _transaction_ended(self, client: str, request: Any, answer: Any, span: Span) -> None:
        transaction = self._model.transactions.get(request.transactional_id)
        ended = (request.producer_id, request.producer_epoch, request.committed)
        if not answer.error_code and (transaction is None or ended not in transaction.ends):
            self._wrong(client, f"{request.transactional_id} has not ended so: {ended}")

    def _joined(self, client: str, request: Any, answer: Any, span: Span) -> None:
        """A generation has one leader, or a late answer names none. The group is in this generation or later."""
        if answer.error_code:
            return
        key = self._generation(request.group_id, answer.generation_id)
        group = self._model.group(request.group_id)
        leader = self._leaders.setdefault(key, answer.leader) if answer.leader else ""
        if group.identity(leader) != group.identity(answer.leader):
            self._wrong(client, f"{answer.leader} leads generation {key}, {leader} did before")
        is_leader, skips = answer.leader == answer.member_id, getattr(answer, "skip_assignment", False)
        if is_leader != bool(answer.members) and not skips:
            self._wrong(client, f"members of generation {key} went to {answer.member_id}, its leader is {leader}")
        group.generation = max(group.generation, answer.generation_id)

    def _generation(self, group_id: str, generation: int) -> tuple[str, int, int]:
        return group_id, self._model.group(group_id).life, generation

    def _synced(self, client: str, request: Any, answer: Any, span: Span) -> None:
        """A member gets the assignment that the leader of its generation sent for it."""
        sent = self._assignments[self._generation(request.group_id, request.generation_id)]
        assignment, identity = bytes(answer.assignment or b""), self._model.group(request.group_id).identity
        wanted = identity(request.member_id)
        expected = [data for each in sent for member_id, data in each.items() if identity(member_id) == wanted]
        if not answer.error_code and assignment and sent and assignment not in expected:
            self._wrong(client, f"{request.member_id} got an assignment that no leader sent")


def _fetched_offsets(request: Any, answer: Any) -> Iterable[tuple[str, Any]]:
    """The groups with their topics, in all versions of the answer."""
    if answer.groups:
        return [(each.group_id, each.topics) for each in answer.groups if not each.error_code]
    return [(request.group_id, answer.topics)] if not answer.error_code else []
