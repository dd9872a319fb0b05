"""All randomness of a run, from one seed: each user has its own stream, so that no user changes another's choices."""

import hashlib
import random


class Chance:
    """Streams of random numbers by name, which depend on the seed only, not on Python's hash seed."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def stream(self, name: str) -> random.Random:
        """A new stream of that name, from its beginning."""
        digest = hashlib.blake2b(f"{self.seed}/{name}".encode(), digest_size=16).digest()
        return random.Random(int.from_bytes(digest, "big"))


class SimEntropy:
    """`Entropy` from one stream."""

    def __init__(self, stream: random.Random) -> None:
        self._stream = stream

    def take(self, count: int) -> bytes:
        return self._stream.randbytes(count)
