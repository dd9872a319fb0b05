"""The protocol's side of a load in Python: counts work, and answers with the figures."""

import json
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable

import msgspec

from benches.kafka.loads.load import Start


class Meter:
    """Counts acknowledged or received bytes and records; one thread counts, and another one reads."""

    def __init__(self) -> None:
        self._bytes = 0
        self._records = 0
        self._taken = (0, 0)
        self._taken_s = time.perf_counter()
        self.began = threading.Event()

    def add(self, size_bytes: int, records: int) -> None:
        """Count work that is done."""
        self._bytes += size_bytes
        self._records += records
        if not self.began.is_set():
            self.began.set()

    def take(self) -> dict[str, float]:
        """The figures since the last call, as `Counts`."""
        now_s, now = time.perf_counter(), (self._bytes, self._records)
        seconds, (size_bytes, records) = now_s - self._taken_s, self._taken
        self._taken, self._taken_s = now, now_s
        return {"seconds": seconds, "mib": (now[0] - size_bytes) / 2**20, "records": now[1] - records}


def serve(work: Callable[[Start, Meter], None]) -> None:
    """Run `work` in a thread, and answer on the standard output until the standard input ends; never returns."""
    start = msgspec.json.decode(sys.argv[1], type=Start)
    meter = Meter()

    def fail(problem: threading.ExceptHookArgs) -> None:
        traceback.print_exception(problem.exc_value)
        sys.stderr.flush()
        os._exit(1)

    threading.excepthook = fail
    threading.Thread(target=work, args=(start, meter), daemon=True).start()
    meter.began.wait()
    print("ready", flush=True)
    for _ in sys.stdin:
        print(json.dumps(meter.take()), flush=True)
    os._exit(0)  # the load is of no use after its last report
