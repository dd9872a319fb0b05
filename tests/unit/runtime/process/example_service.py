"""A tiny service whose steps do as the first argument says; it prints each step as it happens."""

import asyncio
import gc
import os
import sys
import time

from penstock.contracts.errors import Fenced, Unavailable
from penstock.runtime.journal import JournalStuck
from penstock.runtime.process.config import ServiceConfig
from penstock.runtime.process.life import run_app


class ExampleApp:
    def __init__(self, manner: str) -> None:
        self._manner = manner
        self._drained = asyncio.Event()
        if manner == "make-fails":
            raise Unavailable("it cannot be made")

    def say(self, step: str) -> None:
        print(step, flush=True)

    async def open(self) -> None:
        self.say("open")
        match self._manner:
            case "open-fails":
                raise Unavailable("the store cannot be reached")
            case "open-crashes":
                raise ValueError("a bug in open")
            case "open-hangs":
                await asyncio.Event().wait()

    async def run(self) -> None:
        self.say("run")
        match self._manner:
            case "run-fails":
                async with asyncio.TaskGroup() as group:
                    group.create_task(self._halt())
                    group.create_task(asyncio.Event().wait())
            case "run-stuck":
                async with asyncio.TaskGroup() as group:
                    group.create_task(self._stick())
            case "run-crashes":
                raise ValueError("a bug in run")
            case "run-returns":
                return
            case "run-counts":
                self.say(f"set aside: {gc.get_freeze_count()}")
        try:
            if self._manner == "run-fails-in-drain":
                await self._drained.wait()
                raise Fenced("it broke while draining")
            await asyncio.Event().wait()
        finally:
            self.say("run ended")

    async def _halt(self) -> None:
        raise Fenced("the journal is gone")

    async def _stick(self) -> None:
        raise JournalStuck("the journal takes nothing")

    async def drain(self) -> None:
        self.say("drain")
        self._drained.set()
        if self._manner in ("drain-hangs", "run-fails-in-drain"):
            await asyncio.Event().wait()
        if self._manner == "drain-takes-100-ms":
            await asyncio.sleep(0.1)
        self.say("drained")

    async def close(self) -> None:
        self.say("close")
        if self._manner == "close-crashes":
            raise ValueError("a bug in close")


if __name__ == "__main__":
    if sys.argv[1] == "orphan":  # a child of its own, that must end when this process dies
        os.environ["PENSTOCK_PARENT_PID"] = str(os.getpid())
        child = os.spawnv(os.P_NOWAIT, sys.executable, [sys.executable, __file__, "well"])
        print(f"child {child}", flush=True)
        time.sleep(60)
    drain_deadline_ms = int(os.environ.get("EXAMPLE_DRAIN_DEADLINE_MS", "60000"))
    settings = ServiceConfig(instance="example-1", drain_deadline_ms=drain_deadline_ms, log_format="json")
    sys.exit(run_app("example", settings, lambda: ExampleApp(sys.argv[1])))
