"""Sockets, connections and the order of answers: it turns bytes of clients into requests, and answers into bytes.

It may import all other packages of the gateway, and none of them imports it. Start reading at `pipeline.py`, one
connection without its socket, which does no I/O. Then read `connection.py`, its socket side, and `dispatch.py`, which
calls the handlers. `connection_manager.py` owns all connections.
"""
