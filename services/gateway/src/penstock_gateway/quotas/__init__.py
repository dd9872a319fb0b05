"""Client quotas: measures the use of each quota, and throttles clients that exceed theirs (ADR 0014).

May import `kafka`, `metadata`, contracts and `penstock.runtime`. Start with `throttle.py`, which counts each request.
"""
