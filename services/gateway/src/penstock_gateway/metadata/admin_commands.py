"""What the APIs that change topics share: commands in bounded entries, or only validated, and what to say of them."""

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

COMMANDS_PER_ENTRY_MAX = 100  # a hundred topics with every configuration set stay far below an entry's limit
DEADLINE_S_MIN = 1.0
DEADLINE_S_MAX = 60.0
TOPIC_NAME_LENGTH_MAX = 249  # Kafka's
MESSAGE_LENGTH_MAX = 1_000  # an error quotes what the client sent, but not megabytes of it

AdminResult = tuple[ErrorCode, str | None]
Name = TypeVar("Name", bound=Hashable)


def duplicates(names: Iterable[Name]) -> set[Name]:
    """The names that occur more than once."""
    return {name for name, count in Counter(names).items() if count > 1}


def level_validation_errors(gateway: HasSequencer, configs: dict[str, str]) -> list[str]:
    """Why a topic cannot have these configurations yet: while releases are mixed, sequencers would wait in vain."""
    level = gateway.sequencer.seen_level
    if level is None or level_of_configs(configs) <= level:
        return []
    return ["some sequencers do not know these configurations yet"]


def topic_name_validation_error(name: str) -> str:
    """Why there can be no such topic, in Kafka's words; "" if there can."""
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
    """One outcome per command; refused as OUTCOME_UNKNOWN where no sequencer answered in time."""
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
