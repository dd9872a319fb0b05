"""Asks gateways, right before a commit, whether their clients still wait for the requests in it (ADR 0024)."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Protocol

import structlog

from penstock.contracts import subjects
from penstock.contracts.codec import decode, encode
from penstock.contracts.errors import Corrupt, PenstockError
from penstock.contracts.messages import ConfirmReply, ConfirmRequest
from penstock.runtime.bus.bus import Bus

log = structlog.get_logger()

CONFIRM_S = 1.0  # a gateway without an answer after this time is paused or cut off

Leases = Mapping[int, int]  # by number of the request: ms in which it may be committed, 0 if it was given up


class Confirmer(Protocol):
    """The part of `Confirmation` that commits need."""

    async def leases(self, gateway: str, requests: Sequence[int]) -> Leases: ...


class Confirmation:
    """The gateways' answers, one lease for each request; a gateway that does not answer has given up all of them."""

    def __init__(self, *, bus: Bus, cluster: str, timeout_s: float = CONFIRM_S) -> None:
        self._bus = bus
        self._cluster = cluster
        self._timeout_s = timeout_s

    async def leases(self, gateway: str, requests: Sequence[int]) -> Leases:
        """The leases of one gateway's requests, from the moment of this call on."""
        question = encode(ConfirmRequest(list(requests)))
        try:
            data = await self._bus.request(subjects.confirm(self._cluster, gateway), question, self._timeout_s)
            reply = decode(data, ConfirmReply)
            if len(reply.leases_ms) != len(requests):
                raise Corrupt(f"{len(reply.leases_ms)} leases for {len(requests)} requests")
        except PenstockError as error:
            log.warning("produce_unconfirmed", gateway=gateway, requests=len(requests), reason=str(error))
            return dict.fromkeys(requests, 0)
        return dict(zip(requests, reply.leases_ms, strict=True))


async def confirm_all(confirmer: Confirmer, wanted: Mapping[str, Sequence[int]]) -> dict[tuple[str, int], int]:
    """The leases of all requests, by gateway and number; all gateways are asked at the same time."""
    answers = await asyncio.gather(*(confirmer.leases(gateway, requests) for gateway, requests in wanted.items()))
    return {
        (gateway, number): lease_ms
        for gateway, leases in zip(wanted, answers, strict=True)
        for number, lease_ms in leases.items()
    }
