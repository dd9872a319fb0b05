"""Faults of consumer groups: their offsets, static members, and the partitions that members own."""

from tests.testkit.mutants.mutant import Change, Mutant

MUTANTS = [
    Mutant(
        "accept_late_offset_commits",
        "The machine accepts an offset commit whose sender did not know the newest one: a group's offset goes back.",
        [
            Change(
                "penstock_sequencer.core.groups.offset_commit",
                "return state.removed_sequence if before is None else before.sequence",
                "return 0",
            )
        ],
    ),
    Mutant(
        "accept_fenced_static_members",
        "The machine accepts heartbeats of a member whose instance id another member has: two members read the same.",
        [
            Change(
                "penstock_sequencer.core.all_groups.queries",
                """\
    rejection = check_member(group, query.member_id, query.group_instance_id)
""",
                """\
    rejection = check_member(group, query.member_id, query.group_instance_id)
    if query.group_instance_id in group.static_members:
        rejection = Rejection.NONE
""",
            )
        ],
    ),
    Mutant(
        "take_no_report_for_empty_report",
        "The machine takes a heartbeat without owned partitions as giving all back: two members own a partition.",
        [
            Change(
                "penstock_sequencer.core.groups.consumer_group",
                "    if owned is None:\n        return True\n",
                "    if owned is None:\n        return False\n",
            )
        ],
    ),
]
