"""The audit of a cluster: whether its bucket holds what its journal says, whole, and nothing else."""
