"""A schema registry for tests: Confluent's REST API over schemas in memory, and the frames of its serializers."""

import contextlib
import json
import ssl
import threading
from base64 import b64encode
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

CONTENT_TYPE = "application/vnd.schemaregistry.v1+json"
Answer = tuple[int, Any]


def framed(schema_id: int, payload: bytes) -> bytes:
    """The bytes that a serializer writes."""
    return b"\0" + schema_id.to_bytes(4, "big") + payload


class SchemaRegistry:
    """Schemas by their ids; a test may change `login`, `answers` and the flags while it serves."""

    def __init__(self) -> None:
        self.url = ""
        self.login = ""  # USER:PASSWORD
        self.requests: list[str] = []
        # Answers in place of the right ones, by path without a query.
        self.answers: dict[str, Answer] = {}
        self.location = ""
        # As Karapace does for schemas with references.
        self.serializes_by_version_only = False
        self._schemas: dict[int, dict[str, Any]] = {}
        self._versions: dict[tuple[str, int], int] = {}

    def register(
        self, subject: str, schema: Any, kind: str = "AVRO", references: list[tuple[str, str]] | None = None
    ) -> int:
        """The id of the next version of a subject; references are names and subjects, in their newest version."""
        schema_id = len(self._schemas) + 100_001
        found: dict[str, Any] = {"schema": schema if isinstance(schema, str) else json.dumps(schema)}
        if kind != "AVRO":  # the API leaves the default out
            found["schemaType"] = kind
        if references:
            found["references"] = [
                {"name": name, "subject": other, "version": self._newest(other)} for name, other in references
            ]
        self._schemas[schema_id] = found
        self._versions[subject, self._newest(subject) + 1] = schema_id
        return schema_id

    def _newest(self, subject: str) -> int:
        return max((version for name, version in self._versions if name == subject), default=0)

    def answer(self, target: str, authorization: str) -> Answer:
        """The status and the JSON of one request."""
        self.requests.append(target)
        if self.login and authorization != "Basic " + b64encode(self.login.encode()).decode():
            return 401, {"error_code": 401, "message": "Unauthorized"}
        parts = urlsplit(target)
        if parts.path in self.answers:
            return self.answers[parts.path]
        names = [unquote(each) for each in parts.path.strip("/").split("/")]
        is_serialized = parse_qs(parts.query).get("format") == ["serialized"]
        match names:
            case ["schemas", "ids", number]:
                if is_serialized and self.serializes_by_version_only:
                    return 500, {"error_code": 500, "message": "Internal Server Error"}
                return self._schema(int(number), is_serialized)
            case ["schemas", "ids", number, "versions"]:
                places = [place for place, schema_id in self._versions.items() if schema_id == int(number)]
                return 200, [{"subject": subject, "version": version} for subject, version in places]
            case ["subjects", subject, "versions", version]:
                found = self._versions.get((subject, int(version)))
                if found is None:
                    return 404, {"error_code": 40401, "message": f"Subject '{subject}' not found."}
                status, schema = self._schema(found, is_serialized)
                return status, {"subject": subject, "version": int(version), "id": found, **schema}
        return 404, {"error_code": 404, "message": "HTTP 404 Not Found"}

    def store(self, target: str, given: dict[str, Any]) -> Answer:
        """The id of a schema that a serializer registers, or looks up before."""
        names = [unquote(each) for each in urlsplit(target).path.strip("/").split("/")]
        kind = given.get("schemaType", "AVRO")
        match names:
            case ["subjects", subject, "versions"]:
                return 200, {"id": self.register(subject, given["schema"], kind)}
        return 404, {"error_code": 40401, "message": f"Subject '{names[-1]}' not found."}

    def _schema(self, schema_id: int, is_serialized: bool) -> Answer:
        found = self._schemas.get(schema_id)
        if found is None:
            return 404, {"error_code": 40403, "message": f"Schema {schema_id} not found"}
        if found.get("schemaType") == "PROTOBUF" and not is_serialized:
            found = found | {"schema": 'syntax = "proto3"; ...'}
        return 200, found


@contextlib.contextmanager
def serving(tls: ssl.SSLContext | None = None) -> Iterator[SchemaRegistry]:
    """A registry on a local HTTP or HTTPS server, empty at first."""
    registry = SchemaRegistry()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer(*registry.answer(self.path, self.headers.get("Authorization", "")))

        def do_POST(self) -> None:
            content = self.rfile.read(int(self.headers["Content-Length"]))
            self._answer(*registry.store(self.path, json.loads(content)))

        def _answer(self, status: int, found: Any) -> None:
            content = found if isinstance(found, bytes) else json.dumps(found).encode()
            self.send_response(status)
            if registry.location:
                self.send_header("Location", registry.location)
            self.send_header("Content-Type", CONTENT_TYPE)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:
            """Nothing: the output of tests stays short."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    registry.url = f"http{'' if tls is None else 's'}://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), name="schema-registry", daemon=True)
    thread.start()
    try:
        yield registry
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
