"""The newest level that this code knows, apart from `levels` so that `penstock --version` imports nothing large."""

NEWEST_LEVEL = 15  # level 0 is that of release 0.1.0
