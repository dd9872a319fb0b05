"""The topics that each consumer group subscribes, by name or by pattern, updated with members and topics."""

from penstock.contracts.levels import KEPT_MATCHES_LEVEL
from penstock.contracts.regex.regex_subscriptions import BadPattern, Pattern
from penstock_sequencer.core.state.cluster import State
from penstock_sequencer.core.state.consumer_group import ConsumerMember, PatternUse


def subscribe(state: State, group_id: str, topics: list[str], pattern: str) -> None:
    """Add a member's subscription to the group; the pattern has passed `check_pattern`."""
    tables = state.subscriptions
    for name in topics:
        groups = tables.groups_by_topic.setdefault(name, {})
        groups[group_id] = groups.get(group_id, 0) + 1
    if pattern:
        groups = _use(state, pattern).groups
        groups[group_id] = groups.get(group_id, 0) + 1


def unsubscribe(state: State, group_id: str, topics: list[str], pattern: str) -> None:
    """Remove a member's subscription from the group."""
    tables = state.subscriptions
    for name in topics:
        groups = tables.groups_by_topic[name]
        _count_down(groups, group_id)
        if not groups:
            del tables.groups_by_topic[name]
    if pattern:
        groups = tables.patterns[pattern].groups
        _count_down(groups, group_id)
        if not groups:
            del tables.patterns[pattern]


def check_pattern(state: State, text: str) -> str:
    """Why members cannot subscribe by the pattern; "" if they can."""
    if not text or text in state.subscriptions.patterns:
        return ""
    limits, in_use = state.limits.consumers, len(state.subscriptions.patterns)
    if in_use >= limits.patterns_max:
        return f"{limits.patterns_max} patterns are in use already"
    if (in_use + 1) * len(state.topics) > limits.pattern_matches_max:
        return f"{in_use} patterns are in use already, with {len(state.topics)} topics"
    try:
        Pattern(text)
    except BadPattern as error:
        return str(error)
    return ""


def record_topic(state: State, name: str, *, is_new: bool) -> dict[str, None]:
    """Update the tables after a topic came (`is_new`), went or changed; returns the groups that subscribe it."""
    tables = state.subscriptions
    groups = dict.fromkeys(tables.groups_by_topic.get(name, ()))
    for use in tables.patterns.values():
        if use.pattern.matches(name) if is_new else name in use.topics:
            groups |= dict.fromkeys(use.groups)
            if name in state.topics:
                use.topics[name] = None
            else:
                use.topics.pop(name, None)
    return groups


def written_matches(state: State) -> list[tuple[str, bytes]]:
    """Each pattern in use, with one bit for each topic in the state: whether it matches."""
    if state.level < KEPT_MATCHES_LEVEL:
        return []
    return [(text, _bits(state, use)) for text, use in sorted(state.subscriptions.patterns.items())]


def _bits(state: State, use: PatternUse) -> bytes:
    bits = "".join("1" if name in use.topics else "0" for name in state.topics)
    return int(bits or "0", 2).to_bytes(len(bits) // 8 + 1)


def read_matches(state: State, written: list[tuple[str, bytes]]) -> None:
    """Restore the patterns' topics from a snapshot, before members subscribe: matching them again may take seconds."""
    for text, data in written:
        bits = f"{int.from_bytes(data):0{len(state.topics)}b}"
        names = {name: None for name, bit in zip(state.topics, bits, strict=False) if bit == "1"}
        state.subscriptions.patterns[text] = PatternUse(Pattern(text), names)


def subscribed_names(state: State, member: ConsumerMember) -> dict[str, None]:
    """The names of all topics that the member subscribes, whether they exist or not."""
    names = dict.fromkeys(member.topics)
    if member.pattern:
        names |= state.subscriptions.patterns[member.pattern].topics
    return names


def _use(state: State, text: str) -> PatternUse:
    use = state.subscriptions.patterns.get(text)
    if use is None:
        pattern = Pattern(text)
        use = PatternUse(pattern, {name: None for name in state.topics if pattern.matches(name)})
        state.subscriptions.patterns[text] = use
    return use


def _count_down(groups: dict[str, int], group_id: str) -> None:
    groups[group_id] -= 1
    if not groups[group_id]:
        del groups[group_id]
