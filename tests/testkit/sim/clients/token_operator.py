"""Sends the commands of delegation tokens as gateways do, and checks that each acknowledged change is in force."""

import asyncio
import contextlib
import random

from penstock.contracts.commands import (
    CreateToken,
    ExpireToken,
    Outcome,
    Rejected,
    RenewToken,
    TokenCreated,
    TokenExpiry,
)
from penstock.contracts.errors import PenstockError
from penstock.contracts.levels import TOKENS_LEVEL
from penstock.contracts.queries.delegation_tokens import TokensQuery, TokensView
from penstock.contracts.rejections import Rejection
from penstock.runtime.bus.sequencer_client import SequencerClient
from penstock.runtime.clock import Clock
from tests.testkit.sim.checkers.oracle import Oracle

PAUSE_S = (0.05, 1.0)
LEVEL_LOOK_S = 0.3
DEADLINE_S = 6.0
USERS = ("alice", "bob", "carol")
TOKENS_MAX = 8  # of one operator at a time
LIFETIMES_MS = (500, 5_000, 60_000)


class TokenOperator:
    """Creates, renews, ends and lists tokens until cancelled. No other client changes its tokens."""

    def __init__(
        self, name: str, oracle: Oracle, sequencer: SequencerClient, clock: Clock, stream: random.Random
    ) -> None:
        self._name = name
        self._oracle = oracle
        self._sequencer = sequencer
        self._clock = clock
        self._stream = stream
        self._count = 0
        self._known = 0  # the entry up to which it has read
        self._alive: dict[str, str] = {}  # owner by id
        self._ended: set[str] = set()  # tokens whose end was acknowledged

    async def run(self) -> None:
        """One request after the other."""
        while self._oracle.state.level < TOKENS_LEVEL:
            await asyncio.sleep(LEVEL_LOOK_S)
        steps = (self._create, self._renew, self._renew, self._expire, self._read)
        while True:
            with contextlib.suppress(PenstockError):  # the outcome is not known; the model knows it
                await self._stream.choice(steps)()
            await asyncio.sleep(self._stream.uniform(*PAUSE_S))

    async def _create(self) -> None:
        if len(self._alive) >= TOKENS_MAX:
            self._alive.pop(next(iter(self._alive)))
        self._count += 1
        token_id, owner = f"{self._name}-{self._count}", self._stream.choice(USERS)
        renewers = tuple(self._stream.sample(USERS, self._stream.randint(0, 2)))
        lifetimes = (self._stream.choice(LIFETIMES_MS), self._stream.choice(LIFETIMES_MS))
        self._alive[token_id] = owner
        created = await self._send(
            CreateToken(self._clock.now_ms(), token_id, "key", owner, owner, renewers, *lifetimes)
        )
        assert isinstance(created, TokenCreated) or self._is_late(created), created

    async def _renew(self) -> None:
        if self._alive:
            token_id = self._stream.choice(list(self._alive))
            user, lifetime_ms = self._stream.choice(USERS), self._stream.choice(LIFETIMES_MS)
            await self._send(RenewToken(self._clock.now_ms(), token_id, user, lifetime_ms, self._seen()))

    async def _expire(self) -> None:
        if self._alive:
            token_id = self._stream.choice(list(self._alive))
            user = self._stream.choice((self._alive[token_id], None))
            lifetime_ms = self._stream.choice((-1, -1, 0, 1_000))
            outcome = await self._send(ExpireToken(self._clock.now_ms(), token_id, user, lifetime_ms, self._seen()))
            if isinstance(outcome, TokenExpiry) and lifetime_ms < 0:
                self._ended.add(token_id)
                self._alive.pop(token_id, None)

    async def _read(self) -> None:
        """Read the changes since the last time; no token whose end was acknowledged may be valid."""
        view = await self._sequencer.query(
            "delegation_tokens", TokensQuery(0, self._known, fresh=True), TokensView, deadline_s=DEADLINE_S
        )
        for token in view.tokens:
            if token.token_id in self._ended and not token.is_revoked:
                self._oracle.rejected(self._name, f"the revoked token {token.token_id}", "is valid")
        self._known = view.tokens[-1].altered_sequence if view.tokens else view.altered_sequence

    async def _send(self, command: CreateToken | RenewToken | ExpireToken) -> Outcome:
        (outcome,) = await self._sequencer.command([command], deadline_s=DEADLINE_S)
        return outcome

    def _seen(self) -> int:
        return self._sequencer.seen_sequence

    @staticmethod
    def _is_late(outcome: Outcome) -> bool:
        return isinstance(outcome, Rejected) and outcome.rejection in (Rejection.STALE, Rejection.UNSUPPORTED_YET)
