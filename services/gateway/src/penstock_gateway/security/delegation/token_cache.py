"""The delegation tokens in this gateway's memory, by id and by password.

A query names the newest change that the gateway has. So an answer has only the tokens that changed since.
"""

import structlog

from penstock.contracts.commands.delegation_tokens import DelegationToken
from penstock.contracts.errors import Unavailable
from penstock.contracts.levels import TOKENS_LEVEL
from penstock.contracts.queries.delegation_tokens import TokensQuery, TokensView
from penstock.runtime.clock import Clock
from penstock_gateway.security.delegation.token_keys import TokenKeys
from penstock_gateway.security.state_copy import DEFAULT_LIMITS, CopyLimits, Sequencers, StateCopy

VOID_MS = 10 * 60_000  # for so long an expired token stays here, in case this gateway's clock is fast

log = structlog.get_logger()


class TokenCache(StateCopy):
    """The tokens of the cluster that have not expired, and some that have."""

    def __init__(
        self, sequencer: Sequencers, keys: TokenKeys, clock: Clock, limits: CopyLimits = DEFAULT_LIMITS
    ) -> None:
        super().__init__("delegation_tokens", TOKENS_LEVEL, sequencer, limits)
        self._keys = keys
        self._clock = clock
        self._tokens: dict[str, DelegationToken] = {}
        self._ids: dict[bytes, str] = {}  # by HMAC

    def find(self, token_id: str) -> DelegationToken | None:
        """The token with this id, also a void one; None if this gateway knows none."""
        return self._tokens.get(token_id)

    def id_of(self, token_hmac: bytes) -> str:
        """The id of the token with this password, "" if there is none."""
        return self._ids.get(bytes(token_hmac), "")

    def valid(self) -> list[DelegationToken]:
        """All tokens that are not void and whose key is here, in the order in which they were changed."""
        now_ms = self._clock.now_ms()
        return [
            each
            for each in self._tokens.values()
            if self._keys.hmac(each.token_id, each.key_id) is not None and not is_void(each, now_ms)
        ]

    async def _refresh(self) -> None:
        sequence, changed, is_whole = self.sequence, list[DelegationToken](), False
        for _ in range(self._limits.pages_max):
            view = await self._query(TokensQuery(0, sequence, fresh=True), TokensView)
            if view.is_whole:
                changed, is_whole = [], True
            changed += view.tokens
            if view.is_last:
                self._apply(view.altered_sequence, changed, is_whole)
                return
            sequence = view.tokens[-1].altered_sequence
        raise Unavailable("delegation tokens change faster than they can be read")

    def _apply(self, sequence: int, changed: list[DelegationToken], is_whole: bool) -> None:
        self.is_known = True
        if sequence == self.sequence:
            return
        before_ms = self._clock.now_ms() - VOID_MS
        kept = {} if is_whole else self._tokens
        for token in changed:
            kept.pop(token.token_id, None)
            kept[token.token_id] = token
        self._tokens = {token_id: each for token_id, each in kept.items() if each.expiry_ms > before_ms}
        ids = {token_id: token_hmac for token_hmac, token_id in self._ids.items()}
        self._ids = {}
        for token_id, each in self._tokens.items():
            token_hmac = ids.get(token_id) or self._keys.hmac(token_id, each.key_id)
            if token_hmac is not None:
                self._ids[token_hmac] = token_id
        self.sequence = sequence
        log.info("delegation_tokens_changed", sequence=sequence, changed=len(changed), tokens=len(self._tokens))


def is_void(token: DelegationToken, now_ms: int) -> bool:
    """Whether no client can log in with the token any more."""
    return token.is_revoked or token.expiry_ms <= now_ms
