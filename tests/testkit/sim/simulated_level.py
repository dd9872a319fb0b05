"""The level that simulated clusters reach: all that the code has, also what no release raises a cluster to yet."""

from penstock.contracts.levels import NEWEST_LEVEL

SIMULATED_LEVEL = max(NEWEST_LEVEL, 4)
