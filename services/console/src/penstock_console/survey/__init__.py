"""The state of the cluster, read from sequencers and processes while pages are open.

`survey.py` has topics and groups, `processes.py` the processes and their metrics, `histograms.py` times from metrics.
"""
