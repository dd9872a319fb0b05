"""The gateway: speaks the Kafka protocol to clients, and keeps no state of its own.

Start reading at `app.py`, which builds the parts, then `server/` (connections) and `handlers/` (one module per API).
The rooms with the work are `produce`, `fetch`, `segments`, `tail`, `metadata`, `coordination`, `share` and `quotas`.
"""
