"""Faults of share groups: locks, acknowledgements, delivery counts."""

from tests.testkit.mutants.mutant import Change, Mutant

PARTITION = "penstock_sequencer.core.share.partition"
RELEASE = "penstock_sequencer.core.share.release"
LETTERS_TESTS = ("tests/unit/gateway/dead_letters",)
STARTS_TESTS = ("tests/unit/sequencer/core/share/test_core_share_starts.py",)

MUTANTS = [
    Mutant(
        "share_acknowledge_before_commit",
        "The gateway confirms acknowledgements before the journal holds them: accepted records are delivered again.",
        [
            Change(
                "penstock_gateway.handlers.share.share_acknowledge",
                """\
    lock_ms = await gateway.share_commands.acknowledge(
""",
                """\
    import asyncio
    import copy

    async def acknowledge_later(group_id, member_id, acknowledged, *, ended):
        copies = [copy.copy(each) for each in acknowledged]
        task = asyncio.create_task(gateway.share_commands.acknowledge(group_id, member_id, copies, ended=ended))
        task.add_done_callback(asyncio.Task.result)
        return 0

    lock_ms = await acknowledge_later(
""",
            )
        ],
    ),
    Mutant(
        "share_redeliver_accepted_records",
        "The machine makes accepted records available again: other members process them a second time.",
        [
            Change(
                RELEASE,
                "in (AcknowledgeType.GAP, AcknowledgeType.ACCEPT, AcknowledgeType.REJECT)",
                "in (AcknowledgeType.GAP, AcknowledgeType.REJECT)",
            )
        ],
    ),
    Mutant(
        "share_release_locks_of_all_members",
        "The machine releases all members' locks when one member leaves: records are delivered while they are locked.",
        [
            Change(
                "penstock_sequencer.core.share.group",
                """\
    release(state, group, member.member_id, changes, unread=unread)
""",
                """\
    for each in (member.member_id, *group.members):
        release(state, group, each, changes, unread=unread)
""",
            )
        ],
    ),
    Mutant(
        "share_acquire_locked_records",
        "The machine lets a member acquire records of another member: two members process them at once.",
        [
            Change(
                PARTITION,
                """\
        if not is_free(hold):
""",
                """\
        if hold.status == ACQUIRED and hold.member_id != self._acquisition.member_id:
            hold = available(hold.first, hold.last, hold.deliveries)
        if not is_free(hold):
""",
            )
        ],
    ),
    Mutant(
        "share_acknowledge_without_lock",
        "The machine accepts acknowledgements of records whose lock has ended: another member's delivery is decided.",
        [
            Change(
                RELEASE,
                """\
    if not all(_has(share, member_id, each) for each in acknowledged):
        return Rejection.INVALID_RECORD_STATE
""",
                "",
            )
        ],
    ),
    Mutant(
        "share_deliver_without_limit",
        "The machine ignores the delivery limit: a record that no member can process is delivered for ever.",
        [
            Change(
                "penstock_sequencer.core.share.acquire_ack",
                "    rules = rules_of(state, group.group_id)\n",
                "    rules = msgspec.structs.replace(rules_of(state, group.group_id), delivery_limit=1_000)\n",
            )
        ],
    ),
    Mutant(
        "share_drop_released_records",
        "The machine drops records that are released or whose lock has ended: no member processes them.",
        [Change(RELEASE, "    if hold.deliveries >= rules.delivery_limit:\n", "    if hold.deliveries >= 0:\n")],
    ),
    Mutant(
        "share_skip_transactional_records",
        "The gateway passes over all records of transactions, committed ones too: no member processes them.",
        [
            Change(
                "penstock_gateway.share.batch_scan",
                "        has_records = _has_records(header, aborted_by_producer.get(header.producer_id, ()))\n",
                "        has_records = _has_records(header, ()) and not is_transactional(header)\n",
            )
        ],
    ),
    Mutant(
        "share_ignore_redelivery_delay",
        "The machine makes released records available at once: their members get them again before the delay is over.",
        [Change(RELEASE, "hold.deliveries, now.delay_end_ms)", "hold.deliveries)")],
    ),
    Mutant(
        "share_end_dead_letters_before_they_are_written",
        "The gateway ends dead letters before a flusher has them: those that are not committed are lost.",
        [
            Change(
                "penstock_gateway.dead_letters.writer",
                """\
        flushed = await route.submit(
""",
                """\
        for each in batches:
            await self._end(group_id, each.letters)
        flushed = await route.submit(
""",
            )
        ],
        tests=LETTERS_TESTS,
    ),
    Mutant(
        "share_drop_dead_letters_in_an_outage",
        "The gateway gives up dead letters whose write was not decided: an outage of the flushers loses them.",
        [
            Change(
                "penstock_gateway.dead_letters.writer",
                "        if again:\n            self._topics.remove",
                "        if again:\n"
                "            await self._end(group_id, [each for batch in batches for each in batch.letters])\n"
                "            self._topics.remove",
            )
        ],
        tests=LETTERS_TESTS,
    ),
    Mutant(
        "share_forget_exhausted_records",
        "The machine keeps no dead letter of a record that was delivered as often as allowed.",
        [Change(PARTITION, "return dead(hold, EXHAUSTED, sequence) if rules.has_dead_letters else ", "return ")],
    ),
    Mutant(
        "share_begin_wherever_the_gateway_says",
        "The machine does not check the offset at which a group begins by time: the group misses younger records.",
        [
            Change(
                "penstock_sequencer.core.share.first_offsets",
                "found if lowest <= found <= end else lowest",
                "found",
            )
        ],
        tests=STARTS_TESTS,
    ),
]
