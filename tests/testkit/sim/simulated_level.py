"""The level of simulated clusters: the newest in the code, also if no release raises clusters to it yet."""

from penstock.contracts.levels import NEWEST_LEVEL

SIMULATED_LEVEL = max(NEWEST_LEVEL, 4)
