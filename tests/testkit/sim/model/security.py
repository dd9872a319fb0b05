"""Users and access control lists, in the model."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from penstock.contracts import commands as c
from penstock.contracts.acls import AclBinding, AclFilter, PatternType
from penstock.contracts.rejections import Rejection
from tests.testkit.sim.model.past import Past

if TYPE_CHECKING:
    from tests.testkit.sim.model.cluster import Model

Credentials = dict[tuple[str, int], c.ScramVerifier]  # by user and mechanism


class SecurityCommands:
    """Applies the commands to the model's users and bindings."""

    def __init__(self, model: "Model") -> None:
        self._model = model
        self.credentials: Past[Credentials] = Past({})
        self.bindings: Past[frozenset[AclBinding]] = Past(frozenset())
        self.changed_sequence = 0
        self.by_class: dict[type[Any], Callable[[Any, Any], None]] = {
            c.AlterScramCredentials: self._alter,
            c.CreateAcls: self._create,
            c.DeleteAcls: self._delete,
        }

    def _alter(self, command: c.AlterScramCredentials, outcome: c.Outcome) -> None:
        if isinstance(outcome, c.Rejected):
            return
        assert isinstance(outcome, c.PerItem)
        wanted: Credentials = dict(self.credentials.now)
        upserted = outcome.rejections[: len(command.upsertions)]
        for upsertion, rejection in zip(command.upsertions, upserted, strict=True):
            if not rejection:
                wanted[upsertion.user, upsertion.verifier.mechanism] = upsertion.verifier
        deleted = outcome.rejections[len(command.upsertions) :]
        for deletion, rejection in zip(command.deletions, deleted, strict=True):
            place = (deletion.user, deletion.mechanism)
            is_there = place in self.credentials.now
            if rejection == Rejection.RESOURCE_NOT_FOUND and is_there and len(command.deletions) == 1:
                self._model.wrong(command, f"{place} was not found, and exists")
            if not rejection and not is_there:
                self._model.wrong(command, f"{place} was deleted, and did not exist")
            if not rejection:
                wanted.pop(place, None)
        if wanted != self.credentials.now:
            self._change(command)
            self.credentials.set(self._model.sequence, wanted)

    def _create(self, command: c.CreateAcls, outcome: c.Outcome) -> None:
        if isinstance(outcome, c.Rejected):
            return
        assert isinstance(outcome, c.PerItem)
        accepted = zip(command.bindings, outcome.rejections, strict=True)
        added = frozenset(binding for binding, rejection in accepted if not rejection) - self.bindings.now
        if added:
            self._change(command)
            self.bindings.set(self._model.sequence, self.bindings.now | added)

    def _delete(self, command: c.DeleteAcls, outcome: c.Outcome) -> None:
        if isinstance(outcome, c.Rejected):
            return
        assert isinstance(outcome, c.AclsDeleted)
        removed: frozenset[AclBinding] = frozenset()
        for wanted, found in zip(command.filters, outcome.deleted, strict=True):
            expected = frozenset(each for each in self.bindings.now if _is_meant(wanted, each))
            if frozenset(found) != expected or len(found) != len(expected):
                self._model.wrong(command, f"the filter {wanted} removed {found}, it means {sorted(expected)}")
            removed |= frozenset(found)
        if removed:
            self._change(command)
            self.bindings.set(self._model.sequence, self.bindings.now - removed)

    def _change(self, command: Any) -> None:
        """Take a change, which must have seen the last one."""
        if 0 <= command.seen_sequence < self.changed_sequence:
            self._model.wrong(command, f"it saw entry {command.seen_sequence}, not change {self.changed_sequence}")
        self.changed_sequence = self._model.sequence


def _is_meant(wanted: AclFilter, binding: AclBinding) -> bool:
    """Kafka's rule for the filters that simulated clients send: a name, or a prefix, or all bindings of a principal."""
    if wanted.principal not in (None, binding.principal):
        return False
    assert wanted.pattern_type in (PatternType.ANY, PatternType.LITERAL, PatternType.PREFIXED)
    if wanted.pattern_type not in (PatternType.ANY, binding.pattern_type):
        return False
    return wanted.name is None or wanted.name == binding.name
