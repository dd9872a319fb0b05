"""A tiny service for tests of the process life: its first argument selects a behaviour, and it prints each step."""

import asyncio
import gc
import os
import sys

from penstock.contracts.errors import Corrupt, Fenced, Invalid, Unavailable
from penstock.runtime.journal import JournalStuck
from penstock.runtime.process.config import ServiceConfig
from penstock.runtime.process.life import run_app


class ExampleApp:
    def __init__(self, behaviour: str) -> None:
        self._behaviour = behaviour
        self._drained = asyncio.Event()
        if behaviour == "make-fails":
            raise Unavailable("it cannot be made")

    def show(self, step: str) -> None:
        print(step, flush=True)

    async def open(self) -> None:
        self.show("open")
        match self._behaviour:
            case "open-fails":
                raise Unavailable("the store cannot be reached")
            case "open-invalid":
                raise Invalid("the bucket does not exist")
            case "open-corrupt":
                raise Corrupt("the bucket has another journal")
            case "open-crashes":
                raise ValueError("a bug in open")
            case "open-hangs":
                await asyncio.Event().wait()

    async def run(self) -> None:
        self.show("run")
        match self._behaviour:
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
                self.show(f"frozen: {gc.get_freeze_count()}")
        try:
            if self._behaviour == "run-fails-in-drain":
                await self._drained.wait()
                raise Fenced("it broke while draining")
            await asyncio.Event().wait()
        finally:
            self.show("run ended")

    async def _halt(self) -> None:
        raise Fenced("the journal is gone")

    async def _stick(self) -> None:
        raise JournalStuck("the journal accepts nothing")

    async def drain(self) -> None:
        self.show("drain")
        self._drained.set()
        if self._behaviour in ("drain-hangs", "run-fails-in-drain"):
            await asyncio.Event().wait()
        if self._behaviour == "drain-takes-100-ms":
            await asyncio.sleep(0.1)
        self.show("drained")

    async def close(self) -> None:
        self.show("close")
        if self._behaviour == "close-crashes":
            raise ValueError("a bug in close")


if __name__ == "__main__":
    if sys.argv[1] == "orphan":  # its child must end when this process dies
        os.environ["PENSTOCK_PARENT_PID"] = str(os.getpid())
        child = os.spawnv(os.P_NOWAIT, sys.executable, [sys.executable, __file__, "well"])
        print(f"child {child}", flush=True)
        os.waitpid(child, 0)
    drain_deadline_ms = int(os.environ.get("EXAMPLE_DRAIN_DEADLINE_MS", "60000"))
    settings = ServiceConfig(instance="example-1", drain_deadline_ms=drain_deadline_ms, log_format="json")
    sys.exit(run_app("example", settings, lambda: ExampleApp(sys.argv[1])))
