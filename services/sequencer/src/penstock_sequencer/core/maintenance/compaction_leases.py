"""Job leases: which compactor works on which segments, so that no two compactors do the same work.

Job leases only divide the work. Correctness does not depend on them, because `replace_extents` checks the extents
alone. So a compactor that lost its lease, or never had one, does no harm.
"""

from penstock.contracts.commands import Done, LeaseJob, Rejected, ReleaseJob
from penstock.contracts.ids import ID_BYTES
from penstock.contracts.rejections import Rejection
from penstock_sequencer.core.state.cluster import Changes, JobLease, State
from penstock_sequencer.core.state.limits import MaintenanceLimits


def lease_job(state: State, command: LeaseJob, changes: Changes) -> Done | Rejected:
    """Lease the segments to the holder, unless another job has one of them; the same lease again is renewed."""
    validation_error = _validation_error(command, state.limits.maintenance)
    if validation_error is not None:
        return validation_error
    remove_leases(state)
    lease = state.leases.get(command.job_id)
    if lease is None:
        return _new_lease(state, command)
    if lease.holder != command.holder:
        return Rejected(Rejection.ALREADY_LEASED, f"{lease.holder} has the job until {lease.until_ms}")
    if lease.segment_ids != command.segment_ids:
        return Rejected(Rejection.INVALID_REQUEST, "the job has a lease on other segments")
    lease.until_ms = state.clock_ms + command.lease_ms
    return Done()


def release_job(state: State, command: ReleaseJob, changes: Changes) -> Done:
    """Remove the job lease if it is the holder's; otherwise there is nothing to do."""
    lease = state.leases.get(command.job_id)
    if lease is not None and lease.holder == command.holder:
        _remove(state, command.job_id)
    return Done()


def remove_leases(state: State) -> None:
    """Remove the job leases that have ended; at most `job_leases_max` are checked."""
    over = [job_id for job_id, lease in state.leases.items() if lease.until_ms <= state.clock_ms]
    for job_id in over:
        _remove(state, job_id)


def _remove(state: State, job_id: str) -> None:
    for segment_id in state.leases.pop(job_id).segment_ids:
        del state.leased[segment_id]


def _new_lease(state: State, command: LeaseJob) -> Done | Rejected:
    for segment_id in command.segment_ids:
        if segment_id in state.leased:
            message = f"segment {segment_id.hex()} is leased to job {state.leased[segment_id]}"
            return Rejected(Rejection.ALREADY_LEASED, message)
    limits = state.limits.maintenance
    leased_count = len(state.leased) + len(command.segment_ids)
    if len(state.leases) >= limits.job_leases_max or leased_count > limits.leased_segments_max:
        return Rejected(Rejection.OVERLOADED, "the limit of job leases or leased segments is reached")
    until_ms = state.clock_ms + command.lease_ms
    state.leases[command.job_id] = JobLease(command.holder, until_ms, list(command.segment_ids))
    state.leased.update(dict.fromkeys(command.segment_ids, command.job_id))
    return Done()


def _validation_error(command: LeaseJob, limits: MaintenanceLimits) -> Rejected | None:
    for name in (command.job_id, command.holder):
        if not 0 < len(name) <= limits.lease_names_length_max:
            return Rejected(Rejection.INVALID_REQUEST, f"a name of {len(name)} characters")
    if not 0 < command.lease_ms <= limits.job_lease_max_ms:
        return Rejected(Rejection.INVALID_REQUEST, f"a lease of {command.lease_ms} ms")
    count = len(command.segment_ids)
    if not 0 < count <= limits.segments_per_lease_max or len(set(command.segment_ids)) < count:
        return Rejected(Rejection.INVALID_REQUEST, f"{count} segments are too few or too many, or one occurs twice")
    if any(len(segment_id) != ID_BYTES for segment_id in command.segment_ids):
        return Rejected(Rejection.INVALID_REQUEST, "a segment id has the wrong length")
    return None
