"""The workloads: a workload loads a system for some seconds, and returns its figures by name."""
