"""All chance of a run, from one seed: a stream of its own for everybody who throws dice, so nobody disturbs others."""

import hashlib
import random


class Chance:
    """Streams by name, the same for the same seed whatever the hash seed."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def stream(self, name: str) -> random.Random:
        """A fresh stream of that name."""
        digest = hashlib.blake2b(f"{self.seed}/{name}".encode(), digest_size=16).digest()
        return random.Random(int.from_bytes(digest, "big"))


class SimEntropy:
    """`Entropy` out of one stream."""

    def __init__(self, stream: random.Random) -> None:
        self._stream = stream

    def take(self, count: int) -> bytes:
        return self._stream.randbytes(count)
