"""Commands that show the inside of a cluster over NATS: `status`, `explain` and `doctor`.

`processes` finds the processes and their pages. `record` and `latency` are the two subjects of `explain`. `checks` and
`bundle` belong to `doctor`.
"""
