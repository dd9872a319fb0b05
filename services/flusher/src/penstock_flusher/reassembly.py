"""Reassembles requests that come in several messages: keeps their parts until the last one has come."""

from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar


class Part(Protocol):
    """The facts that reassembly needs of a fragment: its request and its place in it."""

    @property
    def gateway(self) -> str: ...

    @property
    def request(self) -> int: ...

    @property
    def part(self) -> int: ...

    @property
    def parts(self) -> int: ...


Fragment = TypeVar("Fragment", bound=Part)


@dataclass(slots=True)
class _PartialRequest(Generic[Fragment]):
    latest_s: float
    fragments: list[Fragment] = field(default_factory=list)


class Reassembly(Generic[Fragment]):
    """Joins the parts of requests.

    A request enters the buffer with its last part. So a buffer may close at any time without splitting a request. Parts
    come one after the other, so the order of a connection's requests is kept. A request is rejected if its next part
    does not come within `part_wait_s`, or a wrong part comes. Nothing of it is stored then.
    """

    def __init__(self, part_wait_s: float) -> None:
        self._part_wait_s = part_wait_s
        self._partial: dict[tuple[str, int], _PartialRequest[Fragment]] = {}

    def add(self, fragment: Fragment, now_s: float) -> tuple[list[Fragment], list[Fragment]]:
        """All fragments of a request that `fragment` completes, and all fragments of a request that it breaks."""
        if fragment.parts == 1:
            return [fragment], []
        key = (fragment.gateway, fragment.request)
        request = self._partial.pop(key, None) or _PartialRequest(now_s)
        request.fragments.append(fragment)
        if fragment.part != len(request.fragments) - 1 or fragment.parts != request.fragments[0].parts:
            return [], request.fragments
        if len(request.fragments) == fragment.parts:
            return request.fragments, []
        request.latest_s = now_s
        self._partial[key] = request
        return [], []

    def give_up(self, gateway: str, request: int) -> list[Fragment]:
        """Remove and return the fragments of a request that can no longer be completed."""
        partial = self._partial.pop((gateway, request), None)
        return partial.fragments if partial else []

    def give_up_late(self, now_s: float) -> list[Fragment]:
        """Remove and return the fragments of all requests whose next part is overdue."""
        late = [key for key, partial in self._partial.items() if now_s >= partial.latest_s + self._part_wait_s]
        return [fragment for key in late for fragment in self._partial.pop(key).fragments]

    def give_up_all(self) -> list[Fragment]:
        """Remove and return the fragments of all incomplete requests."""
        fragments = [fragment for partial in self._partial.values() for fragment in partial.fragments]
        self._partial.clear()
        return fragments

    def due_s(self) -> float:
        """The time when the first incomplete request is overdue; infinity if there is none."""
        return min((partial.latest_s + self._part_wait_s for partial in self._partial.values()), default=float("inf"))
