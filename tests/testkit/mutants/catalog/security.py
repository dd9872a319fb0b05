"""Faults in users, access control lists and delegation tokens."""

from tests.testkit.mutants.mutant import Change, Mutant

SHARES = "penstock_sequencer.core.state.shares"
PRODUCER_TABLE = "penstock_sequencer.core.log.producer_table"
SHARES_TESTS = "tests/unit/sequencer/core/security/test_core_principal_shares.py"
CORE = "tests/unit/sequencer/core/security"
TOKEN_APIS = "tests/unit/gateway/admin/test_gateway_token_apis.py"
TOKEN_LOGINS = "tests/unit/gateway/security/test_gateway_token_logins.py"

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
        "fill_tables_for_all",
        "The machine looks at the free places of a table only: one principal fills it, and all others are rejected.",
        [
            Change(
                SHARES,
                "owned + growth <= free * state.limits.shares.entries_per_free_place",
                "True",
            )
        ],
        (SHARES_TESTS,),
    ),
    Mutant(
        "count_entries_of_nobody",
        "The machine counts each group of a principal for ANONYMOUS: the principal has no share of groups.",
        [Change("penstock_sequencer.core.groups.offset_commit", "enter(state, command.principal))", "NOT_NAMED)")],
        (SHARES_TESTS,),
    ),
    Mutant(
        "evict_entries_of_others",
        "A principal at its share takes the places of others' idle transactional ids: their producers are fenced.",
        [Change("penstock_sequencer.core.transactions.coordinator", "known >= known_max or each == owner", "True")],
        (SHARES_TESTS,),
    ),
    Mutant(
        "evict_producers_of_others",
        "A principal at its share evicts idle producers of other principals from a partition.",
        [Change(PRODUCER_TABLE, "lambda each: each == owner)", "_is_any)")],
        (SHARES_TESTS,),
    ),
    Mutant(
        "mark_evictions_for_all",
        "Evictions of one principal's producers reject new producers of all others, as long as they go on.",
        [
            Change(
                PRODUCER_TABLE,
                "    return max(partition.evicted_ms, evictions.get(owner, 0))",
                "    return max(partition.evicted_ms, *evictions.values(), 0)",
            )
        ],
        (SHARES_TESTS,),
    ),
    Mutant(
        "accept_late_copies_without_a_name",
        "The machine accepts a late copy of an evicted producer's batch from a flusher that names no principals.",
        [Change(PRODUCER_TABLE, "max((partition.evicted_ms, *evictions.values()))", "partition.evicted_ms")],
        (SHARES_TESTS,),
    ),
    Mutant(
        "drop_principals_with_evictions",
        "The machine drops a principal right after its producers were evicted: a late copy of a batch is stored twice.",
        [Change(SHARES, "        if row.evicted_ms and row.", "        if False and row.")],
        (SHARES_TESTS,),
    ),
    Mutant(
        "forget_owners_in_snapshots",
        "A snapshot has no owners of producers: replicas that start from it decide otherwise than the rest.",
        [
            Change(
                "penstock_sequencer.core.snapshot.migrations",
                "partitions[place].producers[producer_id].owner = owner",
                "pass",
            )
        ],
        (SHARES_TESTS,),
    ),
    Mutant(
        "name_no_principals_in_commits",
        "The flusher leaves the principals out of its commits: producers have no owners, and no principal a share.",
        [Change("penstock_flusher.flush", "            list(flush.principals),\n", "")],
        ("tests/unit/flusher",),
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
    Mutant(
        "accept_ended_tokens",
        "A gateway accepts logins with a token after its end: a job that has a copy keeps its owner's rights.",
        [
            Change(
                "penstock_gateway.security.delegation.token_cache",
                "    return token.is_revoked or token.expiry_ms <= now_ms",
                "    return token.is_revoked",
            )
        ],
        tests=(TOKEN_LOGINS,),
    ),
    Mutant(
        "accept_revoked_tokens",
        "A gateway accepts logins with a revoked token until the time at which it would have ended.",
        [
            Change(
                "penstock_sequencer.core.security.tokens",
                "    is_revoked = command.lifetime_ms < 0",
                "    is_revoked = False",
            )
        ],
        tests=(CORE,),
    ),
    Mutant(
        "let_all_users_renew_tokens",
        "A user that is neither owner nor renewer of a token can move or end it.",
        [
            Change(
                "penstock_sequencer.core.security.tokens",
                "    if command.user is not None and command.user != token.owner and",
                "    if False and",
            )
        ],
        tests=(CORE,),
    ),
    Mutant(
        "renew_ended_tokens",
        "The machine renews a token after its end: a copy of an old token is valid again.",
        [
            Change(
                "penstock_sequencer.core.security.tokens",
                "    if token.expiry_ms <= _clock_ms(state, command):",
                "    if False:",
            )
        ],
        tests=(CORE,),
    ),
    Mutant(
        "let_tokens_make_tokens",
        "A session of a token makes and renews tokens: a token of an hour becomes one without an end.",
        [
            Change(
                "penstock_gateway.security.delegation.delegation_tokens",
                "    return client.user != ANONYMOUS and not client.token_id",
                "    return client.user != ANONYMOUS",
            )
        ],
        tests=(TOKEN_APIS,),
    ),
    Mutant(
        "make_tokens_of_all_owners",
        "A user makes a token of another owner without CREATE_TOKENS, and logs in as that owner.",
        [
            Change(
                "penstock_gateway.enforcement.delegation_tokens",
                "    is_own = principal == user_principal(call.client.user)",
                "    is_own = True",
            )
        ],
        tests=(TOKEN_APIS,),
    ),
    Mutant(
        "show_tokens_of_all_owners",
        "A list of tokens has those of other owners, with the passwords to log in as these.",
        [
            Change(
                "penstock_gateway.enforcement.delegation_tokens",
                "    if call.client.user in users or any(",
                "    if True or any(",
            )
        ],
        tests=(TOKEN_APIS,),
    ),
    Mutant(
        "find_tokens_by_a_part_of_their_password",
        "A gateway takes the first letters of a token's password for all of it: a few guesses find a token to renew.",
        [
            Change(
                "penstock_gateway.security.delegation.token_cache",
                """        return self._ids.get(bytes(token_hmac), "")""",
                """        part = bytes(token_hmac)
        return next((each for whole, each in self._ids.items() if whole.startswith(part)), "")""",
            )
        ],
        tests=("tests/unit/gateway/security/test_gateway_token_cache.py",),
    ),
]
