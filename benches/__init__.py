"""Numbers with a budget: `make bench` measures them on this machine, in one run."""
