"""Several services in one process: opened in order, drained in the reverse order, ended together."""

import asyncio
import contextlib
import contextvars
from collections.abc import Coroutine, Sequence
from typing import Any

import structlog

from penstock.runtime.process.life import App


class AgentApp:
    """One process with several roles, which share a host and nothing else.

    The end of one role is the end of the process. The log lines of a role have the field `role`.
    """

    def __init__(self, roles: Sequence[tuple[str, App]]) -> None:
        """`roles`: names and services, in the order of their start."""
        self._roles = [(app, _context(name)) for name, app in roles]
        self._opened: list[tuple[App, contextvars.Context]] = []

    async def open(self) -> None:
        """Open the roles one after the other."""
        for app, context in self._roles:
            self._opened.append((app, context))
            await _within(context, app.open())

    async def run(self) -> None:
        """Work until cancelled, or until a role ends."""
        async with asyncio.TaskGroup() as group:
            for app, context in self._roles:
                group.create_task(_run(app), context=context)

    async def drain(self) -> None:
        """Drain the roles in the reverse order: gateways first, as they send requests to the others."""
        for app, context in reversed(self._roles):
            await _within(context, app.drain())

    async def close(self) -> None:
        """Close the roles that were opened, in the reverse order; all of them, if one fails or this is cancelled."""
        async with contextlib.AsyncExitStack() as stack:
            for app, context in self._opened:
                stack.push_async_callback(_close, app, context)


async def _run(app: App) -> None:
    await app.run()
    raise RuntimeError("a role ended without a stop signal")


async def _close(app: App, context: contextvars.Context) -> None:
    await _within(context, app.close())


def _context(role: str) -> contextvars.Context:
    context = contextvars.copy_context()
    context.run(structlog.contextvars.bind_contextvars, role=role)
    return context


async def _within(context: contextvars.Context, work: Coroutine[Any, Any, None]) -> None:
    await asyncio.get_running_loop().create_task(work, context=context)
