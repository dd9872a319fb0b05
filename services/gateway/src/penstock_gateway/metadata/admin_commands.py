"""Runs the commands of administration APIs, in bounded entries or only validated, and maps their outcomes."""

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from typing import TypeVar

from penstock.contracts.commands import Command, Outcome, Rejected
from penstock.contracts.errors import Unavailable
from penstock.contracts.ids import is_legal_topic_name
from penstock.contracts.levels import level_of_configs
from penstock.contracts.queries.topics import ValidateQuery, ValidateView
from penstock.contracts.rejections import Rejection
from penstock.kafkawire.error_codes import ErrorCode
from penstock_gateway.kafka.error_mapping import error_of
from penstock_gateway.kafka.parts import HasSequencer

COMMANDS_PER_ENTRY_MAX = 100  # a hundred topics with all configurations set stay far below an entry's limit
DEADLINE_S_MIN = 1.0
DEADLINE_S_MAX = 60.0
TOPIC_NAME_LENGTH_MAX = 249  # Kafka's
MESSAGE_LENGTH_MAX = 1_000  # an error quotes the client's text, but not megabytes of it

AdminResult = tuple[ErrorCode, str | None]
Name = TypeVar("Name", bound=Hashable)


def duplicates(names: Iterable[Name]) -> set[Name]:
    """The names that occur more than once."""
    return {name for name, count in Counter(names).items() if count > 1}


def level_validation_errors(gateway: HasSequencer, configs: dict[str, str]) -> list[str]:
    """The errors of configurations that a topic cannot have yet, because not all sequencers know them."""
    level = gateway.sequencer.seen_level
    if level is None or level_of_configs(configs) <= level:
        return []
    return ["these configurations are not supported until all sequencers of the cluster are upgraded"]


def topic_name_validation_error(name: str) -> str:
    """Why a topic name is not legal, in Kafka's words; "" if it is legal."""
    if is_legal_topic_name(name):
        return ""
    name = name[:MESSAGE_LENGTH_MAX]
    reason = f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    if not name:
        reason = "the empty string is not allowed"
    elif name in (".", ".."):
        reason = f"'{name}' is not allowed"
    elif len(name) > TOPIC_NAME_LENGTH_MAX:
        reason = f"the length of '{name}' is longer than the max allowed length {TOPIC_NAME_LENGTH_MAX}"
    return f"Topic name is invalid: {reason}"


async def run_commands(
    gateway: HasSequencer, commands: Sequence[Command], timeout_ms: int, *, validate_only: bool = False
) -> list[Outcome]:
    """One outcome per command; the rejection OUTCOME_UNKNOWN if no sequencer answers in time."""
    deadline_s = min(max(timeout_ms / 1000, DEADLINE_S_MIN), DEADLINE_S_MAX)
    outcomes: list[Outcome] = []
    for start in range(0, len(commands), COMMANDS_PER_ENTRY_MAX):
        some = list(commands[start : start + COMMANDS_PER_ENTRY_MAX])
        try:
            if validate_only:
                view = await gateway.sequencer.query(
                    "validate", ValidateQuery(0, some, fresh=True), ValidateView, deadline_s=deadline_s
                )
                outcomes += view.outcomes
            else:
                outcomes += await gateway.sequencer.command(some, deadline_s=deadline_s)
        except Unavailable as error:
            outcomes += [Rejected(Rejection.OUTCOME_UNKNOWN, str(error))] * len(some)
    return outcomes


def result_of(outcome: Outcome) -> AdminResult:
    """Error and message of an outcome, NONE and no message for an accepted command."""
    if isinstance(outcome, Rejected):
        return error_of(outcome.rejection), outcome.message[:MESSAGE_LENGTH_MAX] or None
    return ErrorCode.NONE, None
