"""The command `penstock agent`: its roles, their settings, and its exit code."""

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from penstock.cli.agent.app import AgentApp
from penstock.cli.agent.hosted import hosted_agents
from penstock.cli.agent.roles import USUAL, Role, load_role, parse_roles
from penstock.cli.command_line import NewParser
from penstock.clusters.hosting import HostingApp
from penstock.contracts.errors import Invalid
from penstock.runtime.process.config import BAD_SETTINGS_EXIT_CODE, HostingConfig, read_configs
from penstock.runtime.process.garbage import GarbagePolicy, PolicyOfAnother, ScheduledPolicy
from penstock.runtime.process.life import App, run_app
from penstock.runtime.process.shared_host import SharedHost, instance_of

PROGRAM = "agent"
# Of the process's deadline, for the drain of a gateway beside other roles, which drain after it.
GATEWAY_DRAIN_SHARE = 0.75


def add_parser(new_parser: NewParser) -> None:
    """Register `penstock agent` with the command line."""
    parser = new_parser(
        description="Run several roles in one process, until SIGTERM or Ctrl-C. After -- come the flags of the roles; "
        "each can also be given in the environment.",
    )
    parser.add_argument(
        "--roles",
        default=",".join(USUAL),
        metavar="ROLE,...",
        help="gateway, flusher, cacher, sequencer, janitor, compactor (%(default)s)",
    )
    parser.add_argument("settings", nargs="*", metavar="FLAG", help="flags of the roles, as of each service alone")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run until a signal, and return the exit code, as a single service does."""
    try:
        roles = [load_role(name) for name in parse_roles(arguments.roles)]
        whole, configs = read_settings(roles, arguments.settings, os.environ)
    except Invalid as error:
        print(f"{PROGRAM}: {error}", file=sys.stderr)
        return BAD_SETTINGS_EXIT_CODE
    return run_app(PROGRAM, whole, lambda: make_process(whole, roles, configs))


def read_settings(
    roles: Sequence[Role], argv: Sequence[str], environ: Mapping[str, str]
) -> tuple[HostingConfig, list[HostingConfig]]:
    """The settings of the process, and those of each role."""
    kinds: list[type[HostingConfig]] = [HostingConfig, *(role.config for role in roles)]
    whole, *configs = read_configs(kinds, argv, environ, program=PROGRAM)
    is_alone = len(roles) == 1
    return whole, [_of_role(role.name, config, is_alone=is_alone) for role, config in zip(roles, configs, strict=True)]


def make_process(whole: HostingConfig, roles: Sequence[Role], configs: Sequence[HostingConfig]) -> App:
    """The process's roles, for one or several clusters."""
    if not whole.clusters:
        return make_agent(whole.instance, roles, configs)
    return HostingApp(whole, PROGRAM, hosted_agents(roles, configs))


def make_agent(instance: str, roles: Sequence[Role], configs: Sequence[HostingConfig]) -> AgentApp:
    """The process's roles, wired to one host."""
    shared = SharedHost(instance, roles_expected=len(roles))
    made = []
    for role, config in zip(roles, configs, strict=True):
        parts: dict[str, Any] = {"make_host": shared.host_maker(role.name)}
        if role.name == "sequencer" and len(roles) > 1:
            parts["garbage"] = _garbage_policy(roles)
        made.append((role.name, role.make(config, **parts)))
    return AgentApp(made)


def _garbage_policy(roles: Sequence[Role]) -> GarbagePolicy:
    """The policy of a sequencer beside other roles, whose objects form cycles that its own policy would never free."""
    has_gateway = any(role.name == "gateway" for role in roles)
    return PolicyOfAnother() if has_gateway else ScheduledPolicy()


def _of_role(role: str, config: HostingConfig, *, is_alone: bool) -> HostingConfig:
    """The settings with the role's own instance name, and with its part of the deadline."""
    share = GATEWAY_DRAIN_SHARE if role == "gateway" and not is_alone else 1.0
    return msgspec.structs.replace(
        config, instance=instance_of(config.instance, role), drain_deadline_ms=int(config.drain_deadline_ms * share)
    )
