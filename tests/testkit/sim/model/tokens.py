"""Delegation tokens, in the model."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.contracts import commands as c
from penstock.contracts.rejections import Rejection

if TYPE_CHECKING:
    from tests.testkit.sim.model.cluster import Model

VOID_MS = 600_000  # a void token is known for so long


class Token(NamedTuple):
    """A token; `end_ms` is its expiry."""

    owner: str
    requester: str
    renewers: frozenset[str]
    end_ms: int
    last_ms: int
    is_revoked: bool
    sequence: int


class TokenCommands:
    """Applies the commands to the model's tokens."""

    def __init__(self, model: "Model") -> None:
        self._model = model
        self.tokens: dict[str, Token] = {}
        self._revoked: set[str] = set()  # also those that were removed since
        self.by_class: dict[type[Any], Callable[[Any, Any], None]] = {
            c.CreateToken: self._create,
            c.RenewToken: self._change,
            c.ExpireToken: self._change,
        }

    def _create(self, command: c.CreateToken, outcome: c.Outcome) -> None:
        if isinstance(outcome, c.Rejected):
            return
        assert isinstance(outcome, c.TokenCreated)
        existing = self.tokens.get(command.token_id)
        if existing is None and command.token_id in self._revoked:
            self._model.wrong(command, f"the revoked token {command.token_id} came back")
        if existing is None:
            now_ms = self._model.clock_ms
            last_ms = now_ms + command.max_lifetime_ms
            end_ms = min(now_ms + command.lifetime_ms, last_ms)
            users = (command.owner, command.requester, frozenset(command.renewers))
            existing = Token(*users, end_ms, last_ms, False, self._model.sequence)
            self.tokens[command.token_id] = existing
        if (outcome.token.expiry_ms, outcome.token.max_ms) != (existing.end_ms, existing.last_ms):
            self._model.wrong(command, f"the answer has {outcome.token}, the token is {existing}")

    def _change(self, command: c.RenewToken | c.ExpireToken, outcome: c.Outcome) -> None:
        token, now_ms = self.tokens.get(command.token_id), self._model.clock_ms
        if isinstance(outcome, c.Rejected):
            self._model.wrong(command, _untrue(outcome.rejection, command, token, now_ms))
            return
        assert isinstance(outcome, c.TokenExpiry)
        revokes = isinstance(command, c.ExpireToken) and command.lifetime_ms < 0
        if token is None or command.user not in (None, token.owner, *token.renewers):
            self._model.wrong(command, f"{command.user} changed {token}")
            return
        is_late = 0 <= command.seen_sequence < token.sequence
        if token.is_revoked:
            self._model.wrong(command, "" if revokes and is_late else "a revoked token was changed")
            return
        if is_late or token.end_ms <= now_ms:
            self._model.wrong(command, f"at {now_ms}, having seen {command.seen_sequence}, it changed {token}")
        end_ms = now_ms if revokes else min(now_ms + command.lifetime_ms, token.last_ms)
        if outcome.expiry_ms != end_ms:
            self._model.wrong(command, f"the expiry is {outcome.expiry_ms}, not {end_ms}")
        if revokes:
            self._revoked.add(command.token_id)
        self.tokens[command.token_id] = token._replace(end_ms=end_ms, is_revoked=revokes, sequence=self._model.sequence)

    def remove_old(self) -> None:
        """Remove the tokens that ended long ago, at a Tick."""
        before_ms = self._model.clock_ms - VOID_MS
        self.tokens = {token_id: each for token_id, each in self.tokens.items() if each.end_ms > before_ms}


def _untrue(rejection: Rejection, command: c.RenewToken | c.ExpireToken, token: Token | None, now_ms: int) -> str:
    """Why the reason of a rejection is not true; "" if it is."""
    is_true = {
        Rejection.TOKEN_NOT_FOUND: token is None or token.is_revoked,
        Rejection.TOKEN_EXPIRED: token is not None and token.end_ms <= now_ms,
        Rejection.TOKEN_OWNER_MISMATCH: token is not None and command.user not in (token.owner, *token.renewers),
        Rejection.STALE: token is not None and command.seen_sequence < token.sequence,
    }
    return "" if is_true.get(rejection, False) else f"{rejection.name} of {token} at {now_ms}"
