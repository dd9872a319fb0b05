"""`python -m tests.suites`: run test suites of other projects against Penstock, and against Apache Kafka beside it.

The exit code is 1 if a test fails at Penstock only, or if a suite cannot be built.
"""

import argparse
import sys
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from time import monotonic

from tests.conformance.provision import Missing, cache_folder
from tests.suites import results as shown
from tests.suites.brokers.apache import apache
from tests.suites.brokers.penstock import penstock
from tests.suites.brokers.shape import Opener
from tests.suites.results import KAFKA, PENSTOCK, Result
from tests.suites.running import line, perform
from tests.suites.suites import SUITES
from tests.suites.suites.suite import FAILED, PASSED, SKIPPED, Suite

OPENERS: Mapping[str, Opener] = {PENSTOCK: penstock, KAFKA: apache}
LIMIT_S = 1800.0
SIDE_BY_SIDE = 2  # tests mostly wait for sessions to end


def options(argv: Sequence[str], names: Sequence[str]) -> argparse.Namespace:
    """The command line's options."""
    parser = argparse.ArgumentParser(prog="suites", description=__doc__)
    parser.add_argument("--suite", action="append", choices=names, help="run only this suite; can be repeated")
    parser.add_argument("--only", action="append", metavar="PREFIX", help="run only tests with this prefix")
    parser.add_argument("--failed", action="store_true", help="run only tests whose kept result is a failure")
    parser.add_argument("--without-kafka", action="store_true", help="compare with Kafka's kept results")
    parser.add_argument("--without-penstock", action="store_true", help="run Kafka alone")
    parser.add_argument("--results", type=Path, help="keep the results in this file")
    parser.add_argument("--logs", type=Path, default=cache_folder().with_name("suites"), help="for outputs of tests")
    parser.add_argument("--limit", type=float, default=LIMIT_S, metavar="SECONDS", help="of each test's process")
    parser.add_argument("--jobs", type=int, default=SIDE_BY_SIDE, metavar="N", help="run N tests at a time")
    return parser.parse_args(argv)


def chosen(suite: Suite, tests: Sequence[str], arguments: argparse.Namespace) -> list[str]:
    """The suite's tests that the options select."""
    found = [each for each in tests if each.startswith(tuple(arguments.only or [""]))]
    if not arguments.failed:
        return found
    kept = shown.read(arguments.results).get(suite.name, {"tests": {}})["tests"]
    names = [part for own_or_shared in shown.failures(kept) for part in own_or_shared]
    return [each for each in found if any(name.partition("/")[0] == each for name in names)]


def run_suite(
    suite: Suite, tests: Sequence[str], arguments: argparse.Namespace, openers: Mapping[str, Opener]
) -> list[Result]:
    """All results of one suite, at one kind of brokers after the other."""
    left_out = {PENSTOCK: arguments.without_penstock, KAFKA: arguments.without_kafka}
    results: list[Result] = []
    for kind, opened in openers.items():
        if left_out[kind] or not tests:
            continue
        with (
            tempfile.TemporaryDirectory(prefix="penstock-suites-", ignore_cleanup_errors=True) as folder,
            opened(Path(folder) / kind, suite.shape) as brokers,
            ThreadPoolExecutor(arguments.jobs) as pool,
        ):
            one = partial(
                perform, suite, kind=kind, brokers=brokers, logs=arguments.logs.resolve(), limit_s=arguments.limit
            )
            for found in pool.map(one, tests):
                results += found
                print("\n".join(map(line, found)), flush=True)
    return results


def main(argv: Sequence[str], *, suites: Sequence[Suite] = SUITES, openers: Mapping[str, Opener] = OPENERS) -> int:
    """Run the suites, print and keep the results; the exit code."""
    arguments = options(argv, [each.name for each in suites])
    began = monotonic()
    missing: list[str] = []
    found: list[Result] = []
    run: list[Suite] = []
    kept = shown.read(arguments.results)
    for suite in suites:
        if arguments.suite and suite.name not in arguments.suite:
            continue
        try:
            tests = chosen(suite, suite.tests(), arguments)
            results = run_suite(suite, tests, arguments, openers)
        except Missing as error:
            missing.append(suite.name)
            print(f"NOT RUN: {suite.name}: {error}", file=sys.stderr, flush=True)
            continue
        run.append(suite)
        found += results
        kept = shown.merged(kept, [suite], results)
        if arguments.results:  # after each suite: a run of all takes hours
            shown.save(arguments.results, kept, [each.name for each in suites])
    print(f"\n{shown.table(kept, [each.name for each in run])}\n")
    own = [name for suite in run for name in shown.failures(kept[suite.name]["tests"])[0]]
    passed, failed, skipped = (
        sum(each.outcome == outcome and each.brokers == PENSTOCK for each in found)
        for outcome in (PASSED, FAILED, SKIPPED)
    )
    # In pytest's format, for tools that add up the numbers of test runs.
    print(f"{passed} passed, {failed} failed, {skipped} skipped in {monotonic() - began:.2f}s")
    return int(bool(own) or bool(missing) or not run)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
