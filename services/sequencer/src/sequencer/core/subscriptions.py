"""Which consumer groups subscribe which topics, by name or by pattern; kept up to date with members and topics."""

from sequencer.core.consumer_state import ConsumerMember, PatternUse
from sequencer.core.limits import PATTERN_MATCHES_MAX, PATTERNS_MAX
from sequencer.core.state import State
from sequencer.core.topic_patterns import BadPattern, Pattern


def subscribe(state: State, group_id: str, topics: list[str], pattern: str) -> None:
    """A member of the group subscribes these; the pattern is one that `check_pattern` let pass."""
    tables = state.subscriptions
    for name in topics:
        groups = tables.groups_by_topic.setdefault(name, {})
        groups[group_id] = groups.get(group_id, 0) + 1
    if pattern:
        groups = _use(state, pattern).groups
        groups[group_id] = groups.get(group_id, 0) + 1


def unsubscribe(state: State, group_id: str, topics: list[str], pattern: str) -> None:
    """A member of the group does not subscribe these any more."""
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
    """Why nobody can subscribe by the pattern, "" if one can."""
    if not text or text in state.subscriptions.patterns:
        return ""
    if len(state.subscriptions.patterns) >= PATTERNS_MAX:
        return f"{PATTERNS_MAX} patterns are in use already"
    if (len(state.subscriptions.patterns) + 1) * len(state.topics) > PATTERN_MATCHES_MAX:
        return f"{len(state.subscriptions.patterns)} patterns are in use already, with {len(state.topics)} topics"
    try:
        Pattern(text)
    except BadPattern as error:
        return str(error)
    return ""


def note_topic(state: State, name: str) -> dict[str, None]:
    """A topic of the name came, went or changed: the groups that subscribe it."""
    tables = state.subscriptions
    groups = dict.fromkeys(tables.groups_by_topic.get(name, ()))
    for use in tables.patterns.values():
        if name in use.topics or use.pattern.matches(name):
            groups |= dict.fromkeys(use.groups)
            if name in state.topics:
                use.topics[name] = None
            else:
                use.topics.pop(name, None)
    return groups


def subscribed_names(state: State, member: ConsumerMember) -> dict[str, None]:
    """The names of all topics that the member subscribes, also of those that do not exist."""
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
