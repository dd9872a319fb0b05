"""Random fractions from bytes: uniform, below one, and the same for the same bytes."""

import pytest

from penstock.runtime.clock import SystemEntropy, fraction


class Bytes:
    def __init__(self, byte: int) -> None:
        self._byte = byte

    def take(self, count: int) -> bytes:
        return bytes([self._byte]) * count


@pytest.mark.parametrize(("byte", "expected"), [(0, 0.0), (0x80, 0.50196), (0xFF, 1.0)])
def test_a_fraction_follows_the_bytes_it_is_made_of(byte: int, expected: float) -> None:
    assert fraction(Bytes(byte)) == pytest.approx(expected, abs=1e-5)
    assert fraction(Bytes(byte)) < 1


def test_fractions_of_random_bytes_are_spread_evenly() -> None:
    found = [fraction(SystemEntropy()) for _ in range(2_000)]
    assert len(set(found)) == len(found)
    assert sum(found) / len(found) == pytest.approx(0.5, abs=0.1)
