"""`penstock profile`: keeps addresses and logins of clusters under names, in a file that only the user can read."""

import argparse
import os
import sys
from pathlib import Path

import msgspec

from penstock.cli.command_line import NewParser, add_verbs
from penstock.cli.kafka.profiles import KafkaSettings, named_profile, profiles_file, read_profiles, write_profiles
from penstock.cli.kafka.properties import read_properties
from penstock.cli.kafka.settings import add_login_flags, add_registry_flags, checked
from penstock.cli.output import Done, Listing, Report, Result, add_output_flag, show
from penstock.contracts.errors import Invalid, PenstockError
from penstock.schemas.registry import without_password

_HIDDEN = "(set)"


def add_parser(new_parser: NewParser) -> None:
    """Register `penstock profile` with the command line."""
    verbs = add_verbs(
        new_parser(
            description="Addresses and logins of clusters under names. Commands use the current profile, or the one "
            "that --profile names."
        )
    )
    create = verbs.add_parser(
        "create", help="create or replace a profile", description="Create a profile, and make it the current one."
    )
    create.add_argument("--bootstrap", metavar="HOST:PORT,...", default="", help="the Kafka listener")
    create.add_argument(
        "--command-config", metavar="FILE", default="", help="take client settings, as for Kafka's tools or librdkafka"
    )
    create.add_argument("--replace", action="store_true", help="replace an existing profile")
    add_login_flags(create)
    add_registry_flags(create)
    listed = verbs.add_parser("list", help="list the profiles", description="List the profiles.")
    shown = verbs.add_parser("show", help="show a profile without its password", description="Show a profile.")
    used = verbs.add_parser("use", help="make a profile the current one", description="Make a profile the current one.")
    deleted = verbs.add_parser("delete", help="delete a profile", description="Delete a profile.")
    for verb in (create, shown, used, deleted):
        verb.add_argument("name", metavar="NAME", help="name of the profile")
    runs = ((create, _create), (listed, _list), (shown, _show), (used, _use), (deleted, _delete))
    for verb, run_verb in runs:
        add_output_flag(verb)
        verb.set_defaults(run=run, run_verb=run_verb)


def run(arguments: argparse.Namespace) -> int:
    """Run the verb; 0 if that succeeded, 1 with one sentence if not."""
    try:
        result: Result = arguments.run_verb(arguments, profiles_file(os.environ))
        return show(result, arguments.output)
    except PenstockError as error:
        print(f"penstock: {error}", file=sys.stderr)
        return 1


def _create(arguments: argparse.Namespace, path: Path) -> Done:
    found = KafkaSettings()
    if arguments.command_config:
        found = read_properties(Path(arguments.command_config).expanduser())
    flags = {name: value for name in KafkaSettings.__struct_fields__ if (value := getattr(arguments, name, ""))}
    for name in flags:
        if name.endswith("_file"):
            flags[name] = str(Path(flags[name]).expanduser().absolute())
    settings = KafkaSettings(**flags).over(found)
    if not settings.bootstrap:
        raise Invalid("name the Kafka listener with --bootstrap HOST:PORT")
    profiles = read_profiles(path)
    if arguments.name in profiles.profiles and not arguments.replace:
        raise Invalid(f"profile {arguments.name!r} exists already; --replace replaces it")
    profiles.profiles[arguments.name] = checked(settings)
    profiles.current = arguments.name
    write_profiles(path, profiles)
    return Done(f"profile {arguments.name} is created, and the current one", {"name": arguments.name})


def _list(arguments: argparse.Namespace, path: Path) -> Listing:
    profiles = read_profiles(path)
    rows = [
        {
            "name": name,
            "current": name == profiles.current,
            "bootstrap": each.bootstrap,
            "security_protocol": each.security_protocol,
            "username": each.username,
        }
        for name, each in sorted(profiles.profiles.items())
    ]
    return Listing(rows, "there are no profiles; `penstock profile create` creates one")


def _show(arguments: argparse.Namespace, path: Path) -> Report:
    settings = named_profile(read_profiles(path), arguments.name)
    facts = {name: value for name, value in msgspec.structs.asdict(settings).items() if value}
    if "password" in facts:
        facts["password"] = _HIDDEN
    if "schema_registry" in facts:
        facts["schema_registry"] = without_password(facts["schema_registry"])
    return Report({"name": arguments.name} | facts)


def _use(arguments: argparse.Namespace, path: Path) -> Done:
    profiles = read_profiles(path)
    named_profile(profiles, arguments.name)
    profiles.current = arguments.name
    write_profiles(path, profiles)
    return Done(f"{arguments.name} is the current profile", {"name": arguments.name})


def _delete(arguments: argparse.Namespace, path: Path) -> Done:
    profiles = read_profiles(path)
    named_profile(profiles, arguments.name)
    del profiles.profiles[arguments.name]
    if profiles.current == arguments.name:
        profiles.current = ""
    write_profiles(path, profiles)
    return Done(f"profile {arguments.name} is deleted", {"name": arguments.name})
