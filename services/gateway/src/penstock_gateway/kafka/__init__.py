"""The parts of a Kafka broker that several packages of the gateway use: brokers, clients, error codes, topics.

It imports only the metrics of the gateway. Start reading at `parts.py`, the Protocols of the parts, then `client.py`
and `error_mapping.py`. `broker_view.py` and `listener_config.py` do no I/O.
"""
