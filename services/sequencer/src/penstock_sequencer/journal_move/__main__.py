"""The program of `penstock journal`: `python -m penstock_sequencer.journal_move`."""

import asyncio
import contextlib
import os
import sys

from penstock.contracts.errors import Invalid, PenstockError
from penstock.objectstore import ObjectStore, open_store
from penstock.runtime.nats.client import NatsConnection, connect_nats, without_password
from penstock.runtime.nats.tls import NatsTls
from penstock.runtime.process.config import environment_variable, read_config
from penstock.runtime.process.env_file import read_env_file
from penstock.runtime.process.landing import landing_at, moved_landing, without_landing
from penstock.runtime.process.logs import configure_logs
from penstock_sequencer.journal_move.config import JournalMoveConfig
from penstock_sequencer.journal_move.copies import change_copies
from penstock_sequencer.journal_move.landing import LandingCopy
from penstock_sequencer.journal_move.move import Move, Place
from penstock_sequencer.storage.journal_stream import MADE_BY_MOVE, NatsStreams

INTERRUPTED_EXIT_CODE = 130  # the shells' code for Ctrl-C; the next run completes the work
COPIES_IN_A_CLUSTER = 3
COPIES_CHECKED = 1  # of a journal that is opened; sequencers check the number that they need


def main() -> int:
    """Do the command and print a line for each step; 0 after success, 1 and one sentence after a failure."""
    config = read_config(JournalMoveConfig, sys.argv[1:], os.environ, program="journal")
    configure_logs("journal", config.instance, config.log_level, config.log_format)
    try:
        asyncio.run(_move(config) if config.to_nats_url else _change_copies(config))
    except PenstockError as error:
        sys.stderr.write(f"penstock: {error}\n")
        return 1
    except KeyboardInterrupt:
        return INTERRUPTED_EXIT_CODE
    return 0


def _report(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


async def _change_copies(config: JournalMoveConfig) -> None:
    if not config.copies:
        raise Invalid("give the number of copies of the journal")
    async with contextlib.AsyncExitStack() as stack:
        connection = await _connected(stack, config, config.nats_url)
        await change_copies(connection, config.cluster, config.copies, is_dry_run=config.dry_run, report=_report)


async def _move(config: JournalMoveConfig) -> None:
    target_config = _target_config(config)
    async with contextlib.AsyncExitStack() as stack:
        store = await _opened(stack, without_landing(config.store_url))
        source = await _connected(stack, config, config.nats_url)
        target = await _connected(stack, target_config, target_config.nats_url)
        is_clustered = target.messages.is_clustered
        move = Move(
            store=store,
            cluster=config.cluster,
            source=_place(config, source),
            target=_place(target_config, target),
            replicas=config.copies or (COPIES_IN_A_CLUSTER if is_clustered else 1),
            landing=await _landing_copy(stack, config, target_config),
            report=_report,
        )
        await move.run(is_dry_run=config.dry_run, removes_old=config.remove_old)


def _target_config(config: JournalMoveConfig) -> JournalMoveConfig:
    """The same settings with the new servers, and with the login there."""
    found = read_env_file(config.to_env_file).settings
    login = ("nats_user", "nats_password", "nats_tls_ca", "nats_tls_certificate", "nats_tls_key")
    values = {name: found.get(environment_variable(name), "") for name in login} if config.to_env_file else {}
    return JournalMoveConfig(
        **{name: getattr(config, name) for name in config.__struct_fields__} | {"nats_url": config.to_nats_url} | values
    )


def _tls(config: JournalMoveConfig) -> NatsTls:
    return NatsTls(config.nats_tls_ca, config.nats_tls_certificate, config.nats_tls_key)


async def _connected(stack: contextlib.AsyncExitStack, config: JournalMoveConfig, url: str) -> NatsConnection:
    connection = await connect_nats(
        url, name=config.instance, user=config.nats_user, password=config.nats_password, tls=_tls(config)
    )
    stack.push_async_callback(connection.close)
    return connection


async def _opened(stack: contextlib.AsyncExitStack, url: str) -> ObjectStore:
    store = await open_store(url)
    stack.push_async_callback(store.close)
    return store


def _place(config: JournalMoveConfig, connection: NatsConnection) -> Place:
    streams = NatsStreams(connection, config.cluster, COPIES_CHECKED, made_by=MADE_BY_MOVE)
    return Place(without_password(config.nats_url), streams)


async def _landing_copy(
    stack: contextlib.AsyncExitStack, old: JournalMoveConfig, new: JournalMoveConfig
) -> LandingCopy | None:
    """The copy of the landing store, if that is at the old servers."""
    address = landing_at(old.store_url, old.nats_url)
    if not address:
        return None
    source = await _opened(stack, address)
    if old.dry_run:  # opening the new store would make its stream
        return LandingCopy(source, source, report=_report)
    moved = moved_landing(address, nats_url=new.nats_url, user=new.nats_user, password=new.nats_password, tls=_tls(new))
    return LandingCopy(source, await _opened(stack, moved), report=_report)


if __name__ == "__main__":
    sys.exit(main())
