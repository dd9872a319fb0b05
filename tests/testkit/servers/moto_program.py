"""moto's server, which handles one request at a time: between the check of a condition and the write, no other runs."""

import sys
import threading
from collections.abc import Iterable
from typing import Any

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from moto.server import MotoRequestHandler
from werkzeug.serving import run_simple


class OneAtATime:
    """A WSGI application that never runs in two threads at once. Connections still have a thread each."""

    def __init__(self, application: Any) -> None:
        self._application = application
        self._lock = threading.Lock()

    def __call__(self, environ: Any, start_response: Any) -> Iterable[bytes]:
        with self._lock:
            return self._application(environ, start_response)


if __name__ == "__main__":
    host, port = sys.argv[1:]
    application = DomainDispatcherApplication(create_backend_app)
    run_simple(host, int(port), OneAtATime(application), threaded=True, request_handler=MotoRequestHandler)
