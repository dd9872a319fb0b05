"""Problems of a cluster in words, each with the next thing to do."""

from collections.abc import Sequence

import msgspec

from penstock_console.survey.processes import NEEDED_ROLES, Reading

ERROR, WARNING = "error", "warning"
_ADVICE = {
    "hangs": "Look at its log, then end its process: a new one starts by itself.",
    "does not run": "Look at its log; it starts again after a pause.",
}
_GENERAL = "Its log and the runbooks in docs/operating/runbooks have the next step."


class Problem(msgspec.Struct, frozen=True):
    """A problem, its place and the next step."""

    severity: str
    where: str
    text: str
    advice: str


def problems_of(reading: Reading) -> list[Problem]:
    """All problems, errors first."""
    return sorted([*_missing(reading), *_silent(reading), *_reported(reading)], key=lambda each: each.severity)


def _missing(reading: Reading) -> Sequence[Problem]:
    present = {each.presence.role for each in reading.processes}
    return [
        Problem(ERROR, role, f"there is no {role}: clients are not served", f"Start a {role}.")
        for role in NEEDED_ROLES
        if role not in present
    ]


def _silent(reading: Reading) -> Sequence[Problem]:
    return [
        Problem(ERROR, each.name, f"the process {each.state}", _ADVICE[each.state])
        for each in reading.supervised
        if each.state in _ADVICE
    ]


def _reported(reading: Reading) -> Sequence[Problem]:
    found = []
    silent = tuple(f"{each.name}-" for each in reading.supervised if each.state in _ADVICE)
    for each in reading.processes:
        name, report = each.presence.instance, each.report
        if f"{name}-".startswith(silent):  # the process is a problem already
            continue
        if not report["ready"]:
            found.append(Problem(ERROR, name, f"not ready: {report['reason']}", _GENERAL))
        found += [Problem(WARNING, name, text, _GENERAL) for text in report["degraded"].values()]
    return found
