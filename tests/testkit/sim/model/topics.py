"""Topics and configurations."""

from dataclasses import dataclass, field

from penstock.contracts.commands import AlterClientMetrics, AlterConfigs, AlterGroupConfigs, ConfigOperation
from penstock.contracts.configs.groups import GROUP_RESOURCE_CONFIGS
from penstock.contracts.configs.topics import CLUSTER_CONFIGS, TOPIC_CONFIGS
from penstock.contracts.ids import TopicId
from tests.testkit.sim.model.logs import ModelLog

DEFAULTS = {
    name: each.default
    for configs in (TOPIC_CONFIGS, CLUSTER_CONFIGS, GROUP_RESOURCE_CONFIGS)
    for name, each in configs.items()
}


@dataclass
class ModelTopic:
    """One life of a topic, from creation to deletion; it may come back."""

    name: str
    topic_id: TopicId
    logs: list[ModelLog]
    configs: dict[str, str]
    lost_offsets: dict[tuple[str, int], tuple[int, int]] = field(default_factory=dict)  # of groups, while it is deleted


def altered(configs: dict[str, str], command: AlterConfigs | AlterGroupConfigs | AlterClientMetrics) -> dict[str, str]:
    """The configurations after a command."""
    after = {} if command.replace else dict(configs)
    for change in command.changes:
        present = after.get(change.name, DEFAULTS.get(change.name, ""))
        if change.operation is ConfigOperation.SET:
            after[change.name] = change.value
        elif change.operation is ConfigOperation.DELETE:
            after.pop(change.name, None)
        elif change.operation is ConfigOperation.APPEND:
            after[change.name] = ",".join(
                dict.fromkeys([*(present.split(",") if present else []), *change.value.split(",")])
            )
        else:
            removed = change.value.split(",")
            after[change.name] = ",".join(each for each in present.split(",") if each not in removed)
    return after
