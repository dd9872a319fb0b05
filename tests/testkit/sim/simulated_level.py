"""The level that simulated clusters reach: all that the code has, also what no release raises a cluster to yet."""

from penstock.contracts.levels import NEWEST_LEVEL

SIMULATED_LEVEL = max(NEWEST_LEVEL, 4)
# Where today's release would refuse what it does not raise clusters to. Sequencers are told by their `known_level`.
PATCHED_LEVELS = {
    "penstock_sequencer.storage.snapshot_format.NEWEST_LEVEL": SIMULATED_LEVEL,
    "penstock.contracts.entries.NEWEST_LEVEL": SIMULATED_LEVEL,
}
