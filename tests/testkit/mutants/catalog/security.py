"""Faults in users and access control lists."""

from tests.testkit.mutants.mutant import Change, Mutant

CORE = "tests/unit/sequencer/core/security"

MUTANTS = [
    Mutant(
        "accept_late_passwords",
        "The machine accepts a change whose sender has not seen the last one: a late copy brings back an old password.",
        [
            Change(
                "penstock_sequencer.core.security.users",
                "    if altered and 0 <= command.seen_sequence < state.security_altered_sequence:",
                "    if False:",
            )
        ],
    ),
    Mutant(
        "make_items_of_a_rejected_user",
        "The machine makes upsertions of a user that it rejects: the client takes a password in force for rejected.",
        [
            Change(
                "penstock_sequencer.core.security.users",
                "        if upsertion.user not in rejections:",
                "        if upsertion.user:",
            )
        ],
    ),
    Mutant(
        "match_prefixes_backwards",
        "A filter for a name matches prefixes that begin with the name: lists of other resources are removed.",
        [
            Change(
                "penstock.contracts.acls",
                "return name.startswith(binding.name)",
                "return binding.name.startswith(name)",
            )
        ],
    ),
    Mutant(
        "know_users_without_an_answer",
        "A gateway that no sequencer has answered counts as informed: it decides about access without any list.",
        [
            Change(
                "penstock_gateway.security.state_copy",
                "        self.is_known = False",
                "        self.is_known = True",
            )
        ],
        tests=("tests/unit/gateway/security/test_gateway_security_cache.py",),
    ),
]
