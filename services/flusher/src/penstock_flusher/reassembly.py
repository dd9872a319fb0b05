"""Requests that came in several messages: their parts are held here, outside the buffer, until the last one is in."""

from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar


class Part(Protocol):
    """What must be known of a piece to join it with the others of its request."""

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
class _Join(Generic[Fragment]):
    latest_s: float
    fragments: list[Fragment] = field(default_factory=list)


class Joins(Generic[Fragment]):
    """Joins parts into whole requests.

    A request enters the buffer as a whole with its last part, so a buffer may close at any time without tearing one.
    Parts come one after the other, so the order of a connection's requests stays. A request whose next part does not
    come within `part_wait_s`, or is not the next, is given up: none of it was stored.
    """

    def __init__(self, part_wait_s: float) -> None:
        self._part_wait_s = part_wait_s
        self._open: dict[tuple[str, int], _Join[Fragment]] = {}

    def add(self, fragment: Fragment, now_s: float) -> tuple[list[Fragment], list[Fragment]]:
        """The whole request if `fragment` completes one, and the pieces given up if it does not continue one."""
        if fragment.parts == 1:
            return [fragment], []
        key = (fragment.gateway, fragment.request)
        join = self._open.pop(key, None) or _Join(now_s)
        join.fragments.append(fragment)
        if fragment.part != len(join.fragments) - 1 or fragment.parts != join.fragments[0].parts:
            return [], join.fragments
        if len(join.fragments) == fragment.parts:
            return join.fragments, []
        join.latest_s = now_s
        self._open[key] = join
        return [], []

    def give_up(self, gateway: str, request: int) -> list[Fragment]:
        """The pieces so far of a request that can no longer become whole."""
        join = self._open.pop((gateway, request), None)
        return join.fragments if join else []

    def give_up_late(self, now_s: float) -> list[Fragment]:
        """The pieces of all requests whose next part is overdue."""
        late = [key for key, join in self._open.items() if now_s >= join.latest_s + self._part_wait_s]
        return [fragment for key in late for fragment in self._open.pop(key).fragments]

    def give_up_all(self) -> list[Fragment]:
        """The pieces of all requests that are not whole."""
        fragments = [fragment for join in self._open.values() for fragment in join.fragments]
        self._open.clear()
        return fragments

    def due_s(self) -> float:
        """When the first request is overdue; infinity if none is open."""
        return min((join.latest_s + self._part_wait_s for join in self._open.values()), default=float("inf"))
