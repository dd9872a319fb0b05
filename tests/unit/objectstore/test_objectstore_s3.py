"""Every answer of an S3 server, and no answer, becomes the error that names the caller's next step."""

import asyncio
import contextlib
import datetime
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from penstock.contracts.errors import Invalid, PenstockError, Unavailable
from penstock.objectstore import (
    AlreadyExists,
    EtagMismatch,
    NotDeleted,
    NotFound,
    ObjectStore,
    S3Limits,
    Throttled,
    Unfinished,
)
from penstock.objectstore.errors import RangeBeyond
from penstock.objectstore.s3 import S3Store, make_s3_bucket, open_s3_store
from penstock.objectstore.store import PART_BYTES_MIN

pytestmark = pytest.mark.asyncio(loop_scope="module")

EMPTY_LISTING = b"<ListBucketResult><KeyCount>0</KeyCount></ListBucketResult>"


def answer(status: int, code: str = "", body: bytes = b"", length: int | None = None) -> bytes:
    """An HTTP response in S3's form; with a `length` that differs from the body's it is incomplete."""
    body = body or (b"<Error><Code>%s</Code><Message>because</Message></Error>" % code.encode() if code else b"")
    size = len(body) if length is None else length
    head = f'HTTP/1.1 {status} Status\r\nContent-Length: {size}\r\nETag: "etag"\r\nConnection: close\r\n\r\n'
    return head.encode() + body


class ScriptedServer:
    """A server that answers with each item of `first`, then always with `answer`; it sends nothing for empty bytes."""

    def __init__(self) -> None:
        self.answer = answer(200, body=EMPTY_LISTING)
        self.first: list[bytes] = []
        self.requests: list[str] = []
        self.bodies: list[bytes] = []
        self.endpoint = ""

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            self.requests.append(head)
            if "100-continue" in head:
                writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            lengths = [line for line in head.lower().split("\r\n") if line.startswith("content-length:")]
            self.bodies.append(await reader.readexactly(int(lengths[0].split(":")[1]) if lengths else 0))
            writer.write(self.first.pop(0) if self.first else self.answer)
            await writer.drain()
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def listening() -> AsyncIterator[ScriptedServer]:
    scripted = ScriptedServer()
    listener = await asyncio.start_server(scripted.handle, "127.0.0.1", 0)
    scripted.endpoint = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
    async with listener:
        yield scripted


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def store(listening: ScriptedServer) -> AsyncIterator[ObjectStore]:
    options = {"endpoint": listening.endpoint, "access_key": "someone", "secret_key": "hidden"}
    opened = await open_s3_store("bucket", "prefix", options)
    yield opened
    await opened.close()


@pytest.fixture
def server(listening: ScriptedServer, store: ObjectStore) -> ScriptedServer:
    """The server of `store`, without earlier requests."""
    listening.requests.clear()
    listening.bodies.clear()
    return listening


@pytest.mark.parametrize(
    ("answered", "kind"),
    [
        (answer(503, "SlowDown"), Throttled),
        (answer(503), Throttled),
        (answer(429, "TooManyRequests"), Throttled),
        (answer(400, "RequestTimeout"), Unavailable),
        (answer(408), Unavailable),
        (answer(500, "InternalError"), Unavailable),
        (answer(502), Unavailable),
        (answer(504), Unavailable),
        (answer(404, "NoSuchKey"), NotFound),
        (answer(404, "NoSuchBucket"), Invalid),
        (answer(403, "AccessDenied"), Invalid),
        (answer(400, "InvalidRequest"), Invalid),
        (answer(416, "InvalidRange"), RangeBeyond),
        (answer(200, body=b"too few", length=100), Unavailable),
        (b"", Unavailable),
        (b"not http at all\r\n\r\n", Unavailable),
    ],
)
async def test_the_error_of_a_failed_get_has_the_kind_of_its_cause(
    server: ScriptedServer, store: ObjectStore, answered: bytes, kind: type[PenstockError]
) -> None:
    server.answer = answered
    with pytest.raises(PenstockError) as raised:
        await store.get("a")
    assert type(raised.value) is kind
    assert len(server.requests) == 1, "the client has retried the request"


@pytest.mark.parametrize(
    ("answered", "created", "replaced"),
    [
        (answer(412, "PreconditionFailed"), AlreadyExists, EtagMismatch),
        (answer(409, "ConditionalRequestConflict"), Unavailable, Unavailable),
        (answer(408), Unavailable, Unavailable),
        (answer(404, "NoSuchKey"), EtagMismatch, EtagMismatch),
        (answer(503, "SlowDown"), Throttled, Throttled),
        (answer(500, "InternalError"), Unavailable, Unavailable),
        (answer(501, "NotImplemented"), Unavailable, Unavailable),
        (b"", Unavailable, Unavailable),
    ],
)
async def test_the_error_of_a_failed_put_has_the_kind_of_its_cause(
    server: ScriptedServer,
    store: ObjectStore,
    answered: bytes,
    created: type[PenstockError],
    replaced: type[PenstockError],
) -> None:
    server.answer = answered
    for etag, kind in ((None, created), ('"etag"', replaced)):
        with pytest.raises(PenstockError) as raised:
            await store.put("a", [b"bytes"], if_match=etag)
        assert type(raised.value) is kind
    assert len(server.requests) == 2, "the client has retried the request"


BEGUN = answer(200, body=b"<InitiateMultipartUploadResult><UploadId>7</UploadId></InitiateMultipartUploadResult>")
COMPLETED = answer(200, body=b'<CompleteMultipartUploadResult><ETag>"whole"</ETag></CompleteMultipartUploadResult>')


async def test_an_upload_in_parts_is_one_request_for_each_and_creates_only(
    server: ScriptedServer, store: ObjectStore
) -> None:
    server.first, server.answer = [BEGUN, answer(200), answer(200)], COMPLETED
    upload = await store.begin_parts("a/b", PART_BYTES_MIN)
    await upload.put_part(1, [b"the ", b"end"])
    await upload.put_part(0, [bytes(PART_BYTES_MIN)])
    assert await upload.complete() == '"whole"'
    began, second, first, completed = server.requests
    assert began.startswith("POST /bucket/prefix/a/b?uploads")
    assert second.startswith("PUT /bucket/prefix/a/b?") and "partNumber=2" in second and "uploadId=7" in second
    assert "partNumber=1" in first
    assert completed.startswith("POST /bucket/prefix/a/b?uploadId=7") and "if-none-match: *" in completed.lower()
    assert not any("x-amz-checksum" in request.lower() for request in server.requests)
    assert server.bodies[1] == b"the end"
    assert server.bodies[3].index(b"<PartNumber>1<") < server.bodies[3].index(b"<PartNumber>2<")


@pytest.mark.parametrize(
    ("answered", "part", "completed"),
    [
        (answer(412, "PreconditionFailed"), EtagMismatch, AlreadyExists),
        (answer(409, "ConditionalRequestConflict"), Unavailable, Unavailable),
        (answer(404, "NoSuchUpload"), NotFound, NotFound),
        (answer(503, "SlowDown"), Throttled, Throttled),
        (answer(500, "InternalError"), Unavailable, Unavailable),
        (answer(403, "AccessDenied"), Invalid, Invalid),
        (b"", Unavailable, Unavailable),
    ],
)
async def test_the_error_of_a_failed_upload_has_the_kind_of_its_cause(
    server: ScriptedServer,
    store: ObjectStore,
    answered: bytes,
    part: type[PenstockError],
    completed: type[PenstockError],
) -> None:
    server.first, server.answer = [BEGUN, answer(200)], answered
    upload = await store.begin_parts("a", PART_BYTES_MIN)
    await upload.put_part(0, [b"bytes"])
    with pytest.raises(PenstockError) as raised:
        await upload.put_part(0, [b"bytes"])
    assert type(raised.value) is part
    with pytest.raises(PenstockError) as raised:
        await upload.complete()
    assert type(raised.value) is completed
    assert len(server.requests) == 4, "the client has retried the request"


async def test_a_completion_that_fails_after_the_response_head_is_an_error(
    server: ScriptedServer, store: ObjectStore
) -> None:
    """A slow S3 sends the status 200 before it knows the result."""
    server.first = [BEGUN, answer(200)]
    server.answer = answer(200, body=b"<Error><Code>InternalError</Code><Message>because</Message></Error>")
    upload = await store.begin_parts("a", PART_BYTES_MIN)
    await upload.put_part(0, [b"bytes"])
    with pytest.raises(Unavailable):
        await upload.complete()


def bare(body: bytes = b"") -> bytes:
    """A response with the status 200 and without a field of S3, as a defective proxy sends it."""
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % len(body) + body


LISTED = b"<ListBucketResult><Name>b</Name><Contents><Key>prefix/a</Key>%s</Contents></ListBucketResult>"
NO_TIME = b"<Size>1</Size><ETag>e</ETag><LastModified>never</LastModified>"


@pytest.mark.parametrize("body", [b"", b"<html/>", LISTED % b"", LISTED % NO_TIME])
async def test_a_success_without_the_fields_of_s3_is_no_answer(
    server: ScriptedServer, store: ObjectStore, body: bytes
) -> None:
    server.first = [BEGUN]
    server.answer = bare(body)
    upload = await store.begin_parts("a", PART_BYTES_MIN)
    calls = (store.list("a"), store.put("a", [b"x"]), store.begin_parts("a", PART_BYTES_MIN))
    for call in (*calls, upload.put_part(0, [b"x"])):
        with pytest.raises(Unavailable):
            await call
    server.first = [answer(200)]
    await upload.put_part(0, [b"x"])
    with pytest.raises(Unavailable):
        await upload.complete()


async def test_aborting_an_upload_unknown_to_the_server_succeeds(server: ScriptedServer, store: ObjectStore) -> None:
    server.first, server.answer = [BEGUN], answer(404, "NoSuchUpload")
    upload = await store.begin_parts("a", PART_BYTES_MIN)
    await upload.abort()
    with pytest.raises(NotFound):
        await upload.put_part(0, [b"bytes"])
    assert [request.split()[0] for request in server.requests] == ["POST", "DELETE"]


async def test_a_put_is_one_conditional_request_without_extra_checksums(
    server: ScriptedServer, store: ObjectStore
) -> None:
    server.answer = answer(200)
    assert await store.put("a/b", [b"some ", b"bytes"]) == '"etag"'
    assert await store.put("a/b", [b"others"], if_match='"old"') == '"etag"'
    created, replaced = (request.lower() for request in server.requests)
    assert created.startswith("put /bucket/prefix/a/b http/1.1")
    assert "if-none-match: *" in created
    assert 'if-match: "old"' in replaced
    assert "checksum" not in created
    assert "content-length: 10" in created


def not_deleted(**codes: str) -> bytes:
    """S3's answer to a batch of deletes, with the error codes of failed keys."""
    errors = "".join(f"<Error><Key>prefix/{key}</Key><Code>{code}</Code></Error>" for key, code in codes.items())
    return answer(200, body=f"<DeleteResult>{errors}</DeleteResult>".encode())


async def test_keys_that_could_not_be_deleted_are_named_and_all_others_are_deleted(
    server: ScriptedServer, store: ObjectStore
) -> None:
    server.answer = not_deleted(d="AccessDenied", b="SlowDown", c="InternalError")
    with pytest.raises(NotDeleted, match="3 objects not deleted, the first of them b: s3 answered") as raised:
        await store.delete(["a", "b", "c", "d"])
    assert (raised.value.keys, raised.value.rejected) == (("b", "c", "d"), ("d",))
    assert len(server.requests) == 1, "the client has retried the request"


async def test_an_absent_key_counts_as_deleted(server: ScriptedServer, store: ObjectStore) -> None:
    server.answer = not_deleted(b="NoSuchKey")
    await store.delete(["a", "b"])


async def test_a_failure_that_names_no_key_leaves_all_in_doubt(server: ScriptedServer, store: ObjectStore) -> None:
    server.answer = answer(200, body=b"<DeleteResult><Error><Code>InternalError</Code></Error></DeleteResult>")
    with pytest.raises(NotDeleted) as raised:
        await store.delete(["a", "b"])
    assert (raised.value.keys, raised.value.rejected) == (("a", "b"), ())


@pytest.mark.parametrize(
    ("answered", "kind"),
    [
        (answer(503, "SlowDown"), Throttled),
        (answer(500, "InternalError"), Unavailable),
        (answer(403, "AccessDenied"), Invalid),
        (b"", Unavailable),
    ],
)
async def test_the_error_of_a_failed_delete_has_the_kind_of_its_cause(
    server: ScriptedServer, store: ObjectStore, answered: bytes, kind: type[PenstockError]
) -> None:
    server.answer = answered
    with pytest.raises(PenstockError) as raised:
        await store.delete(["a", "b"])
    assert type(raised.value) is kind
    assert len(server.requests) == 1, "the client has retried the request"


async def test_a_thousand_keys_need_one_request_and_no_keys_need_none(
    server: ScriptedServer, store: ObjectStore
) -> None:
    server.answer = not_deleted()
    await store.delete([f"a/{index}" for index in range(1000)])
    await store.delete([])
    assert len(server.requests) == 1
    assert server.bodies[0].count(b"<Key>prefix/a/") == 1000


async def test_unfinished_uploads_are_listed_below_the_prefix(server: ScriptedServer, store: ObjectStore) -> None:
    upload = "<Upload><Key>prefix/a/{}</Key><UploadId>{}</UploadId><Initiated>2026-01-02T03:04:05Z</Initiated></Upload>"
    uploads = upload.format(1, 8) + upload.format(1, 7) + upload.format(0, 9)
    body = f"<ListMultipartUploadsResult>{uploads}</ListMultipartUploadsResult>"
    server.answer = answer(200, body=body.encode())
    begun_ms = 1_767_323_045_000
    assert list(await store.unfinished("a/", 3)) == [
        Unfinished("a/0", "9", begun_ms),
        Unfinished("a/1", "7", begun_ms),
        Unfinished("a/1", "8", begun_ms),
    ]
    [request] = server.requests
    assert request.startswith("GET /bucket?uploads")
    assert "prefix=prefix%2Fa%2F" in request and "max-uploads=3" in request


async def test_aborting_an_absent_unfinished_upload_succeeds(server: ScriptedServer, store: ObjectStore) -> None:
    server.answer = answer(404, "NoSuchUpload")
    await store.abort_unfinished(Unfinished("a/b", "7", 0))
    [request] = server.requests
    assert request.startswith("DELETE /bucket/prefix/a/b?uploadId=7")
    server.answer = answer(503, "SlowDown")
    with pytest.raises(Throttled):
        await store.abort_unfinished(Unfinished("a/b", "7", 0))


@pytest.mark.parametrize(
    ("answered", "kind", "said"),
    [
        (answer(404, "NoSuchBucket"), Invalid, "NoSuchBucket .*create it with `penstock bucket"),
        (answer(403, "InvalidAccessKeyId"), Invalid, "InvalidAccessKeyId .*check AWS_ACCESS_KEY_ID"),
        (answer(403, "SignatureDoesNotMatch"), Invalid, "check AWS_SECRET_ACCESS_KEY"),
        (answer(403, "AccessDenied"), Invalid, "allow s3:ListBucket"),
        (answer(400, "AuthorizationHeaderMalformed"), Invalid, "AWS_REGION"),
        (answer(503, "SlowDown"), Unavailable, "SlowDown"),
    ],
)
async def test_a_bucket_that_cannot_be_used_is_one_sentence_at_opening(
    server: ScriptedServer, answered: bytes, kind: type[PenstockError], said: str
) -> None:
    server.answer = answered
    options = {"endpoint": server.endpoint, "access_key": "someone", "secret_key": "hidden"}
    with pytest.raises(kind, match=rf"cannot use bucket nowhere at http://127.0.0.1:\d+: .*{said}") as raised:
        await open_s3_store("nowhere", "", options)
    assert "hidden" not in str(raised.value)


def options_for(server: ScriptedServer, **more: str) -> dict[str, str]:
    return {"endpoint": server.endpoint, "access_key": "someone", "secret_key": "hidden"} | more


def asked(server: ScriptedServer) -> list[str]:
    return [" ".join(request.split()[:2]).partition("?")[0] for request in server.requests]


LIST, MAKE = "GET /new", "PUT /new"
LISTED = answer(200, body=EMPTY_LISTING)


@pytest.mark.parametrize(
    ("answers", "made", "requests"),
    [
        ([], False, [LIST]),
        ([answer(404, "NoSuchBucket"), answer(200)], True, [LIST, MAKE, LIST]),
        ([answer(404, "NoSuchBucket"), answer(409, "BucketAlreadyOwnedByYou")], True, [LIST, MAKE, LIST]),
        ([answer(404, "NoSuchBucket"), answer(409, "BucketAlreadyExists")], True, [LIST, MAKE, LIST]),
    ],
)
async def test_a_bucket_is_created_unless_it_exists(
    server: ScriptedServer, answers: list[bytes], made: bool, requests: list[str]
) -> None:
    server.answer, server.first = LISTED, answers
    assert await make_s3_bucket("new", options_for(server)) is made
    assert asked(server) == requests


@pytest.mark.parametrize(
    ("answers", "last", "kind", "said"),
    [
        ([answer(403, "AccessDenied")], answer(403, "InvalidAccessKeyId"), Invalid, "InvalidAccessKeyId"),
        ([answer(404, "NoSuchBucket")], answer(403, "AccessDenied"), Invalid, "AccessDenied"),
        ([answer(403, "x"), answer(409, "BucketAlreadyExists")], answer(403, "AccessDenied"), Invalid, "AccessDenied"),
        ([], answer(503, "SlowDown"), Unavailable, "SlowDown"),
        ([answer(404, "NoSuchBucket")], answer(500, "InternalError"), Unavailable, "InternalError"),
        ([answer(404, "NoSuchBucket"), answer(200)], b"", Unavailable, "Server disconnected|[Cc]onnection"),
    ],
)
async def test_a_bucket_that_cannot_be_created_is_one_sentence(
    server: ScriptedServer, answers: list[bytes], last: bytes, kind: type[PenstockError], said: str
) -> None:
    server.answer, server.first = last, answers
    with pytest.raises(kind, match=rf"cannot make bucket new at http://127.0.0.1:\d+: .*({said})") as raised:
        await make_s3_bucket("new", options_for(server))
    assert "hidden" not in str(raised.value)
    assert "\n" not in str(raised.value)


async def test_a_bucket_is_created_in_the_region_of_the_address(server: ScriptedServer) -> None:
    for region, is_named in (("us-east-1", False), ("eu-central-1", True)):
        server.answer, server.first = LISTED, [answer(404, "NoSuchBucket"), answer(200)]
        await make_s3_bucket("new", options_for(server, region=region))
        assert (f"<LocationConstraint>{region}</LocationConstraint>".encode() in server.bodies[-2]) is is_named


async def test_an_address_without_a_bucket_is_rejected_without_a_request(server: ScriptedServer) -> None:
    with pytest.raises(Invalid, match="needs a bucket"):
        await make_s3_bucket("", options_for(server))
    assert server.requests == []


async def test_without_credentials_the_error_names_the_variables_at_once(
    server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nowhere")
    with pytest.raises(Invalid, match="set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"):
        await open_s3_store("bucket", "", {"endpoint": server.endpoint})
    assert server.requests == []


class ShortPages:
    """A client whose bucket lists a few objects at once, and at first none. Servers do so after many deletes."""

    def __init__(self, keys: list[str]) -> None:
        self.keys = keys
        self.asked: list[dict[str, Any]] = []

    async def list_objects_v2(self, **asked: Any) -> dict[str, Any]:
        self.asked.append(asked)
        above = asked.get("ContinuationToken", "").removeprefix("after ") or asked.get("StartAfter", "")
        left = [key for key in self.keys if key.startswith(asked["Prefix"]) and key > above]
        size = min(2, asked["MaxKeys"]) if "ContinuationToken" in asked else 0
        when = datetime.datetime.fromtimestamp(0, datetime.UTC)
        page = [{"Key": key, "Size": 1, "ETag": "e", "LastModified": when} for key in left[:size]]
        token = f"after {page[-1]['Key'] if page else above}"
        return {"Name": "b", "Contents": page, "IsTruncated": size < len(left), "NextContinuationToken": token}


class ShortPagesStore(S3Store):
    """A store in such a bucket."""

    def __init__(self, names: list[str]) -> None:
        super().__init__("bucket", "p/", S3Limits())
        self._reads = self.client = ShortPages(names)


async def test_a_listing_goes_on_after_a_page_that_has_fewer_objects_than_asked_for() -> None:
    names = [f"a/{number}" for number in range(7)]
    store = ShortPagesStore([f"p/{name}" for name in [*names, "b"]])

    async def keys(prefix: str, after: str = "", limit: int = 1_000) -> list[str]:
        return [each.key for each in await store.list(prefix, after, limit)]

    assert await keys("a/") == names
    assert await keys("a/", "a/2") == names[3:]
    assert await keys("a/", "a/0", 3) == names[1:4]
    assert await keys("c") == []
    store.client.asked.clear()
    assert await keys("a/", limit=3) == names[:3]
    assert [asked["MaxKeys"] for asked in store.client.asked] == [3, 3, 1], "no more than is asked for"


class DirectoryBucket:
    """A client whose bucket lists as those of S3 Express do: only whole folders, in no order, page by page."""

    def __init__(self, keys: list[str]) -> None:
        self.keys = keys

    async def list_objects_v2(self, **asked: Any) -> dict[str, Any]:
        assert asked["Prefix"].endswith("/") and "StartAfter" not in asked, asked
        start = int(asked.get("ContinuationToken", "0"))
        listed = [key for key in self.keys if key.startswith(asked["Prefix"])]
        when = datetime.datetime.fromtimestamp(0, datetime.UTC)
        page = [{"Key": key, "Size": 1, "ETag": "e", "LastModified": when} for key in listed[start : start + 3]]
        is_truncated = start + 3 < len(listed)
        return {"Contents": page, "IsTruncated": is_truncated, "NextContinuationToken": str(start + 3)}


class DirectoryStore(S3Store):
    """A store in such a bucket."""

    def __init__(self, names: list[str]) -> None:
        super().__init__("landing--use1-az1--x-s3", "p/", S3Limits())
        self._reads = DirectoryBucket(names)


async def test_a_directory_bucket_is_listed_in_order_by_key() -> None:
    names = ["b/4", "b/1", "a/9", "b/30", "b/2", "c/1", "b/3"]
    store = DirectoryStore([f"p/{name}" for name in names])

    async def keys(prefix: str, after: str = "", limit: int = 1_000) -> list[str]:
        return [each.key for each in await store.list(prefix, after, limit)]

    assert await keys("") == sorted(names)
    assert await keys("b/", limit=2) == ["b/1", "b/2"]
    assert await keys("b/", "b/2") == ["b/3", "b/30", "b/4"]
    assert await keys("b/3", limit=1) == ["b/3"]
