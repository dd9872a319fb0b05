"""Claims: which compactor works on which segments, so that no two do the same work.

They share work and guard nothing: `replace_extents` looks at the extents alone, so a compactor that lost its claim, or
never had one, does no harm.
"""

from penstock.contracts.commands import ClaimJob, Done, Refused, ReleaseJob
from penstock.contracts.ids import ID_BYTES
from penstock.contracts.rejections import Refusal
from penstock_sequencer.core.state.cluster import Changes, Claim, State
from penstock_sequencer.core.state.limits import (
    CLAIM_LEASE_MAX_MS,
    CLAIM_NAMES_LENGTH_MAX,
    CLAIMED_SEGMENTS_MAX,
    CLAIMS_MAX,
    SEGMENTS_PER_CLAIM_MAX,
)


def claim_job(state: State, command: ClaimJob, changes: Changes) -> Done | Refused:
    """The holder has the segments for its lease, unless another job has one of them; claimed again it goes on."""
    objection = _objection(command)
    if objection is not None:
        return objection
    forget_claims(state)
    claim = state.claims.get(command.job_id)
    if claim is None:
        return _new_claim(state, command)
    if claim.holder != command.holder:
        return Refused(Refusal.ALREADY_CLAIMED, f"{claim.holder} has the job until {claim.until_ms}")
    if claim.segment_ids != command.segment_ids:
        return Refused(Refusal.INVALID_REQUEST, "the job was claimed with other segments")
    claim.until_ms = state.clock_ms + command.lease_ms
    return Done()


def release_job(state: State, command: ReleaseJob, changes: Changes) -> Done:
    """The claim goes, if it is the holder's; if not, or if it is gone already, there is nothing to do."""
    claim = state.claims.get(command.job_id)
    if claim is not None and claim.holder == command.holder:
        _forget(state, command.job_id)
    return Done()


def forget_claims(state: State) -> None:
    """Claims whose lease is over go; there are at most CLAIMS_MAX to look at."""
    over = [job_id for job_id, claim in state.claims.items() if claim.until_ms <= state.clock_ms]
    for job_id in over:
        _forget(state, job_id)


def _forget(state: State, job_id: str) -> None:
    for segment_id in state.claims.pop(job_id).segment_ids:
        del state.claimed[segment_id]


def _new_claim(state: State, command: ClaimJob) -> Done | Refused:
    for segment_id in command.segment_ids:
        if segment_id in state.claimed:
            message = f"segment {segment_id.hex()} is claimed for job {state.claimed[segment_id]}"
            return Refused(Refusal.ALREADY_CLAIMED, message)
    if len(state.claims) >= CLAIMS_MAX or len(state.claimed) + len(command.segment_ids) > CLAIMED_SEGMENTS_MAX:
        return Refused(Refusal.OVERLOADED, "no room for another claim")
    until_ms = state.clock_ms + command.lease_ms
    state.claims[command.job_id] = Claim(command.holder, until_ms, list(command.segment_ids))
    state.claimed.update(dict.fromkeys(command.segment_ids, command.job_id))
    return Done()


def _objection(command: ClaimJob) -> Refused | None:
    for name in (command.job_id, command.holder):
        if not 0 < len(name) <= CLAIM_NAMES_LENGTH_MAX:
            return Refused(Refusal.INVALID_REQUEST, f"a name of {len(name)} letters")
    if not 0 < command.lease_ms <= CLAIM_LEASE_MAX_MS:
        return Refused(Refusal.INVALID_REQUEST, f"a lease of {command.lease_ms} ms")
    count = len(command.segment_ids)
    if not 0 < count <= SEGMENTS_PER_CLAIM_MAX or len(set(command.segment_ids)) < count:
        return Refused(Refusal.INVALID_REQUEST, f"a claim of {count} segments, none twice, is none")
    if any(len(segment_id) != ID_BYTES for segment_id in command.segment_ids):
        return Refused(Refusal.INVALID_REQUEST, "not a segment id")
    return None
