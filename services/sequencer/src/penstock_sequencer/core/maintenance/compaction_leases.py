"""Claims: which compactor works on which segments, so that no two do the same work.

They share work and guard nothing: `replace_extents` looks at the extents alone, so a compactor that lost its claim, or
never had one, does no harm.
"""

from penstock.contracts.commands import Done, LeaseJob, Rejected, ReleaseJob
from penstock.contracts.ids import ID_BYTES
from penstock.contracts.rejections import Rejection
from penstock_sequencer.core.state.cluster import Changes, JobLease, State
from penstock_sequencer.core.state.limits import MaintenanceLimits


def lease_job(state: State, command: LeaseJob, changes: Changes) -> Done | Rejected:
    """The holder has the segments for its lease, unless another job has one of them; claimed again it goes on."""
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
        return Rejected(Rejection.INVALID_REQUEST, "the job was claimed with other segments")
    lease.until_ms = state.clock_ms + command.lease_ms
    return Done()


def release_job(state: State, command: ReleaseJob, changes: Changes) -> Done:
    """The claim goes, if it is the holder's; if not, or if it is gone already, there is nothing to do."""
    lease = state.leases.get(command.job_id)
    if lease is not None and lease.holder == command.holder:
        _remove(state, command.job_id)
    return Done()


def remove_leases(state: State) -> None:
    """Claims whose lease is over go; there are at most `job_leases_max` to look at."""
    over = [job_id for job_id, lease in state.leases.items() if lease.until_ms <= state.clock_ms]
    for job_id in over:
        _remove(state, job_id)


def _remove(state: State, job_id: str) -> None:
    for segment_id in state.leases.pop(job_id).segment_ids:
        del state.leased[segment_id]


def _new_lease(state: State, command: LeaseJob) -> Done | Rejected:
    for segment_id in command.segment_ids:
        if segment_id in state.leased:
            message = f"segment {segment_id.hex()} is claimed for job {state.leased[segment_id]}"
            return Rejected(Rejection.ALREADY_LEASED, message)
    limits = state.limits.maintenance
    leased_count = len(state.leased) + len(command.segment_ids)
    if len(state.leases) >= limits.job_leases_max or leased_count > limits.leased_segments_max:
        return Rejected(Rejection.OVERLOADED, "no room for another claim")
    until_ms = state.clock_ms + command.lease_ms
    state.leases[command.job_id] = JobLease(command.holder, until_ms, list(command.segment_ids))
    state.leased.update(dict.fromkeys(command.segment_ids, command.job_id))
    return Done()


def _validation_error(command: LeaseJob, limits: MaintenanceLimits) -> Rejected | None:
    for name in (command.job_id, command.holder):
        if not 0 < len(name) <= limits.lease_names_length_max:
            return Rejected(Rejection.INVALID_REQUEST, f"a name of {len(name)} letters")
    if not 0 < command.lease_ms <= limits.job_lease_max_ms:
        return Rejected(Rejection.INVALID_REQUEST, f"a lease of {command.lease_ms} ms")
    count = len(command.segment_ids)
    if not 0 < count <= limits.segments_per_lease_max or len(set(command.segment_ids)) < count:
        return Rejected(Rejection.INVALID_REQUEST, f"a claim of {count} segments, none twice, is none")
    if any(len(segment_id) != ID_BYTES for segment_id in command.segment_ids):
        return Rejected(Rejection.INVALID_REQUEST, "not a segment id")
    return None
