"""The delegation tokens of one gateway: the keys, the tokens of the cluster, and the rules for clients that ask."""

import base64
from typing import Protocol

import msgspec

from penstock.contracts.commands.delegation_tokens import DelegationToken
from penstock.contracts.configs.quotas import ANONYMOUS
from penstock.runtime.clock import Clock, Entropy
from penstock_gateway.kafka.client import Client
from penstock_gateway.security.delegation.token_cache import TokenCache
from penstock_gateway.security.delegation.token_keys import TokenKeys, read_token_keys
from penstock_gateway.security.delegation.token_verifiers import TokenVerifiers
from penstock_gateway.security.state_copy import Sequencers

ID_BYTES = 16
DAY_MS = 24 * 3_600_000


class TokenSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of delegation tokens; without a key they are off."""

    secret_key: str = ""
    secret_key_file: str = ""
    max_lifetime_ms: int = 7 * DAY_MS  # Kafka's default
    expiry_time_ms: int = DAY_MS  # Kafka's default


class DelegationTokens:
    """The keys, the tokens and the verifiers of one gateway. It is false if delegation tokens are off."""

    def __init__(self, settings: TokenSettings, *, sequencer: Sequencers, clock: Clock, entropy: Entropy) -> None:
        """`Invalid` if a setting is wrong."""
        self._settings = settings
        self._entropy = entropy
        self.keys: TokenKeys = read_token_keys(settings.secret_key, settings.secret_key_file)
        self.cache = TokenCache(sequencer, self.keys, clock)
        self.verifiers = TokenVerifiers(self.cache, self.keys, clock)

    def __bool__(self) -> bool:
        """Whether they are on."""
        return bool(self.keys)

    def new_id(self) -> str:
        """A random id. None begins with a hyphen, as in Kafka: tools would take it for an option."""
        made = base64.urlsafe_b64encode(self._entropy.take(ID_BYTES)).decode().rstrip("=")
        return f"_{made[1:]}" if made.startswith("-") else made

    def lifetime_ms(self, asked_ms: int) -> int:
        """The time to the next expiry, for a client that asks for this one; 0 or less: the longest."""
        longest_ms = self._settings.expiry_time_ms
        return min(asked_ms, longest_ms) if asked_ms > 0 else longest_ms

    def max_lifetime_ms(self, asked_ms: int) -> int:
        """The time to the end of all renewals, for a client that asks for this one; 0 or less: the longest."""
        longest_ms = self._settings.max_lifetime_ms
        return min(asked_ms, longest_ms) if asked_ms > 0 else longest_ms

    def hmac_of(self, token: DelegationToken) -> bytes:
        """The password of a token in its binary form; empty if its key is not here."""
        return self.keys.hmac(token.token_id, token.key_id) or b""


def check_token_settings(settings: TokenSettings) -> None:
    """Raise `Invalid` with one sentence if a setting is wrong."""
    read_token_keys(settings.secret_key, settings.secret_key_file)


def may_ask(client: Client) -> bool:
    """Whether a client may use the APIs of tokens, as in Kafka: it has proved its identity, and not by a token."""
    return client.user != ANONYMOUS and not client.token_id


class HasTokens(Protocol):
    @property
    def delegation_tokens(self) -> DelegationTokens: ...
