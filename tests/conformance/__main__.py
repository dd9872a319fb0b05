"""`python -m tests.conformance`: run the scenarios with stock clients against Penstock.

The exit code is 1 if a scenario failed, or if a client was missing without `--allow-missing`.
"""

import argparse
import os
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from time import monotonic, time_ns
from typing import NamedTuple

from tests.conformance import results as shown
from tests.conformance.catalogue import EVERYTHING, Catalogue, Client
from tests.conformance.composed import composed_cluster
from tests.conformance.driver import NotOffered
from tests.conformance.provision import Missing
from tests.conformance.results import About, Result
from tests.conformance.scenario import Scenario, Stage
from tests.conformance.secured import Secured, secured_cluster
from tests.testkit.clusters.cluster import Cluster, running
from tests.testkit.loads.transaction_load import wait_for_transactions

SETTINGS = {"PENSTOCK_SHARE_GROUPS": "true"}  # of the new cluster, so that all scenarios can run
SIDE_BY_SIDE = 4  # scenarios mostly wait for sessions to end, and for Java to start
RUN = f"{time_ns():x}"[-8:]  # makes names unique, so that one cluster can serve several runs
CLIENT_WIDTH, SCENARIO_WIDTH = 28, 30

# Starts a cluster in a folder, with further arguments of `penstock up`.
OpenCluster = Callable[[Path, Sequence[str]], AbstractContextManager[Cluster]]
OpenSecured = Callable[[Path], AbstractContextManager[Secured]]


class Place(NamedTuple):
    """Where scenarios run: a cluster, a folder for files, and a cluster with logins if a scenario needs it."""

    bootstrap: str
    folder: Path
    secured: Secured | None = None


@contextmanager
def new_cluster(folder: Path, up_arguments: Sequence[str]) -> Iterator[Cluster]:
    """A cluster of `penstock up` that serves all scenarios."""
    os.environ |= SETTINGS
    with running(folder, *up_arguments) as cluster:
        wait_for_transactions(cluster)
        yield cluster


def options(argv: Sequence[str], catalogue: Catalogue) -> argparse.Namespace:
    """The command line's options."""
    parser = argparse.ArgumentParser(prog="conformance", description=__doc__)
    names = [client.name for client in catalogue.clients]
    parser.add_argument("--client", action="append", choices=names, help="run only this client; can be repeated")
    parser.add_argument("--scenario", action="append", metavar="PREFIX", help="run only scenarios with this prefix")
    parser.add_argument("--short", action="store_true", help="run only the short list for CI")
    parser.add_argument("--results", type=Path, help="write the results to this file")
    parser.add_argument("--allow-missing", action="store_true", help="a missing client is not a failure")
    parser.add_argument("--bootstrap", help="test the cluster at HOST:PORT instead of a new one")
    parser.add_argument("--compose", action="store_true", help="run the logins at containers of docker compose instead")
    parser.add_argument(
        "--up", action="append", default=[], metavar="ARGUMENT", help="pass this argument to `penstock up`"
    )
    arguments = parser.parse_args(argv)
    if arguments.bootstrap and arguments.compose:
        parser.error("--compose starts its own cluster: omit --bootstrap")
    if arguments.bootstrap and arguments.results:
        parser.error("--results is for a new cluster only: omit it with --bootstrap")
    return arguments


def possible(client: Client, arguments: argparse.Namespace, catalogue: Catalogue) -> list[Scenario]:
    """The client's scenarios that the cluster serves."""
    found = catalogue.scenarios_of(client)
    if arguments.bootstrap:  # that cluster has no users for the scenarios
        return [each for each in found if not each.needs_logins]
    return [each for each in found if each.needs_logins] if arguments.compose else found


def chosen(client: Client, arguments: argparse.Namespace, catalogue: Catalogue) -> list[Scenario]:
    """The client's scenarios that the options select."""
    if arguments.client and client.name not in arguments.client:
        return []
    prefixes = tuple(arguments.scenario or [""])
    named = [each for each in possible(client, arguments, catalogue) if each.name.startswith(prefixes)]
    return [each for each in named if not arguments.short or each.name in catalogue.short.get(client.name, [])]


def stage(client: Client, name: str, place: Place) -> Stage:
    """The stage for one client and scenario; `Missing` if the client is not available."""
    command, environment = client.command(), dict(client.environment())
    return Stage(place.bootstrap, name, command, environment, place.folder, client.write_login, place.secured)


def perform(client: Client, scenario: Scenario, place: Place) -> Result:
    """Run one scenario with one client."""
    began = monotonic()
    owner = client.name.lower().replace(" ", "-").replace("'", "")

    def result(outcome: str, detail: str = "") -> Result:
        return Result(client.name, scenario.name, outcome, detail, monotonic() - began)

    try:
        scenario.run(stage(client, f"{owner}.{scenario.name}.{RUN}", place))
    except NotOffered as error:
        return result(shown.NOT_OFFERED, str(error))
    except Exception as error:  # noqa: BLE001 - any error of a scenario is its result; the traceback is printed
        traceback.print_exc()
        return result(shown.FAILED, f"{type(error).__name__}: {error}")
    return result(shown.PASSED)


def identify(client: Client, place: Place) -> About:
    """The client's own name and version; `Missing` if it is not available."""
    return client.about(stage(client, f"about-{len(client.name)}", place))


def line(result: Result) -> str:
    """The line that is printed at the end of a scenario."""
    words = f"{result.client:{CLIENT_WIDTH}} {result.scenario:{SCENARIO_WIDTH}} {result.outcome:12}"
    return f"{words} {result.took_s:6.1f} s  {shown.short(result.detail)}".rstrip()


def perform_all(arguments: argparse.Namespace, place: Place, catalogue: Catalogue) -> tuple[list[Result], list[About]]:
    """Run all selected scenarios with all selected clients, several at a time."""
    jobs: list[tuple[Client, Scenario]] = []
    results: list[Result] = []
    about: list[About] = []
    for client in catalogue.clients:
        scenarios = chosen(client, arguments, catalogue)
        if not scenarios:
            continue
        try:
            about.append(identify(client, place))
            jobs += [(client, scenario) for scenario in scenarios]
        except Missing as error:
            about.append(About(client.name))
            print(f"NOT RUN: {client.name}: {error}", file=sys.stderr, flush=True)
            results += [Result(client.name, each.name, shown.NOT_RUN, str(error), 0) for each in scenarios]
    with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        for result in pool.map(lambda job: perform(*job, place), jobs):
            results.append(result)
            print(line(result), flush=True)
    return results, about


def main(
    argv: Sequence[str],
    *,
    catalogue: Catalogue = EVERYTHING,
    open_cluster: OpenCluster = new_cluster,
    open_secured: OpenSecured = secured_cluster,
    open_composed: OpenSecured = composed_cluster,
) -> int:
    """Run the scenarios, print and save the results; the exit code."""
    arguments = options(argv, catalogue)
    began = monotonic()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="penstock-conformance-")))
        bootstrap = arguments.bootstrap
        if bootstrap is None and not arguments.compose:
            bootstrap = stack.enter_context(open_cluster(folder / "data", arguments.up)).kafka
        secured = None
        if any(each.needs_logins for client in catalogue.clients for each in chosen(client, arguments, catalogue)):
            open_logins = open_composed if arguments.compose else open_secured
            secured = stack.enter_context(open_logins(folder / "secured"))
            bootstrap = bootstrap or secured.address
        results, about = perform_all(arguments, Place(bootstrap, folder, secured), catalogue)
    print(f"\n{shown.table(results, catalogue.scenarios)}\n")
    if arguments.results:
        asked = {each.name: possible(each, arguments, catalogue) for each in catalogue.clients}
        shown.save(arguments.results, results, about, asked)
    passed, failed, missing = [
        [result for result in results if result.outcome == outcome]
        for outcome in (shown.PASSED, shown.FAILED, shown.NOT_RUN)
    ]
    for result in failed:
        print(f"FAILED: {result.client}: {result.scenario}: {shown.short(result.detail)}", file=sys.stderr)
    if missing:
        print(f"NOT RUN: {', '.join(dict.fromkeys(result.client for result in missing))}", file=sys.stderr)
    # In pytest's format, for tools that add up the numbers of test runs.
    print(f"{len(passed)} passed, {len(failed)} failed, {len(missing)} skipped in {monotonic() - began:.2f}s")
    return int(bool(failed) or (bool(missing) and not arguments.allow_missing) or not results)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
