"""An object store in S3 or a compatible server; the only module that imports aioboto3."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import aioboto3
import aiohttp
from aiobotocore.config import AioConfig
from aiobotocore.httpsession import AIOHTTPSession
from botocore.exceptions import ClientError

from penstock.contracts.codec import Buffer
from penstock.contracts.errors import Invalid, PenstockError, Unavailable
from penstock.objectstore.errors import AlreadyExists, EtagMismatch, NotDeleted, NotFound, range_beyond
from penstock.objectstore.limits import DEFAULT_LIMITS, S3Limits
from penstock.objectstore.s3_encryption import OPTIONS as ENCRYPTION_OPTIONS, Encryption, encryption_of
from penstock.objectstore.s3_errors import sentence, translated
from penstock.objectstore.store import (
    LIST_LIMIT_MAX,
    Listing,
    ObjectInfo,
    PartSizes,
    Unfinished,
    check_key,
    check_keys,
    check_listing,
    check_parts,
    check_range,
)
from penstock.objectstore.whole_reads import RangeReads

OPTIONS = ("endpoint", "region", "access_key", "secret_key", "addressing", *ENCRYPTION_OPTIONS)
DIRECTORY_BUCKET_END = "--x-s3"  # of the names of buckets of S3 Express
ADDRESSINGS = ("path", "virtual")

_ABSENT_CODES = frozenset({"NoSuchKey", "404"})
_REJECTED_CODES = frozenset({"AccessDenied"})  # also for a locked object; other codes may be temporary
_LISTING_FIELDS = frozenset({"Name", "KeyCount", "IsTruncated", "Contents"})
_BUCKET_IS_THERE_CODES = frozenset({"BucketAlreadyOwnedByYou", "BucketAlreadyExists"})


async def open_s3_store(
    bucket: str, prefix: str, options: Mapping[str, str], *, limits: S3Limits = DEFAULT_LIMITS.s3
) -> "S3Store":
    """The store in a bucket below a prefix; `Invalid` or `Unavailable` with one sentence if it cannot be used.

    If the options have no credentials, boto takes them from its usual sources: environment, profile, machine.
    """
    _check_address(bucket, options)
    if prefix:
        check_key(prefix)
    store = S3Store(bucket, f"{prefix}/" if prefix else "", limits, encryption_of(options))
    async with contextlib.AsyncExitStack() as undo:
        undo.push_async_callback(store.close)
        with _in_one_sentence("use", bucket, options):
            await store.connect(options)
            await store.list("", limit=1)
        undo.pop_all()
    return store


async def make_s3_bucket(bucket: str, options: Mapping[str, str], *, limits: S3Limits = DEFAULT_LIMITS.s3) -> bool:
    """Create the bucket unless there is one that we can list; returns whether it was created.

    `Invalid` or `Unavailable` with one sentence if there is no bucket afterwards, or if it belongs to another owner.
    """
    _check_address(bucket, options)
    store = S3Store(bucket, "", limits)
    async with contextlib.AsyncExitStack() as undo:
        undo.push_async_callback(store.close)
        with _in_one_sentence("make", bucket, options):
            await store.connect(options)
            try:
                await store.list("", limit=1)
                return False
            except Invalid:  # there is no bucket; for any other reason one of the next two calls fails too
                await store.make_bucket()
            await store.list("", limit=1)
    return True


@contextlib.contextmanager
def _in_one_sentence(verb: str, bucket: str, options: Mapping[str, str]) -> Iterator[None]:
    """Make one sentence of each error, with the bucket that cannot be used or created."""
    try:
        yield
    except PenstockError as error:
        where = f"bucket {bucket} at {options.get('endpoint', 'amazon s3')}"
        kind = Unavailable if isinstance(error, Unavailable) else Invalid
        raise kind(f"cannot {verb} {where}: {error}") from error


class _PlainSession(AIOHTTPSession):  # type: ignore[misc]  # its library has no types
    """Connections that send every request once.

    By default aiohttp repeats a put when the connection breaks. If the first put was successful, the answer to the
    second is that the object exists. The caller cannot know that it is its own object.
    """

    async def _get_session(self, proxy_url: str | None) -> aiohttp.ClientSession:
        session: aiohttp.ClientSession = await super()._get_session(proxy_url)
        session._retry_connection = False
        return session


class S3Store(RangeReads):
    """One bucket; puts and deletes have separate connections, so that reads never wait for uploads."""

    def __init__(self, bucket: str, prefix: str, limits: S3Limits, encryption: Encryption | None = None) -> None:
        self._bucket = bucket
        self._prefix = prefix
        self._limits = limits
        self._encryption = encryption or Encryption()
        self._clients = contextlib.AsyncExitStack()
        self._writes: Any = None
        self._reads: Any = None

    async def connect(self, options: Mapping[str, str]) -> None:
        session = aioboto3.Session()
        settings = _settings(options, self._limits)
        with translated("client"):
            try:
                self._writes = await self._clients.enter_async_context(session.client("s3", **settings))
                self._reads = await self._clients.enter_async_context(session.client("s3", **settings))
            except ValueError as error:  # botocore rejects an endpoint with it
                raise Invalid(sentence(error)) from error

    async def make_bucket(self) -> None:
        """Create the bucket; does nothing if there is one, even if it has another owner."""
        region = self._writes.meta.region_name
        place = {} if region == "us-east-1" else {"CreateBucketConfiguration": {"LocationConstraint": region}}
        with translated(f"bucket {self._bucket}"):
            try:
                await self._writes.create_bucket(Bucket=self._bucket, **place)
            except ClientError as error:
                if error.response.get("Error", {}).get("Code") not in _BUCKET_IS_THERE_CODES:
                    raise

    @property
    def has_local_reads(self) -> bool:
        return False

    async def put(self, key: str, body: Sequence[Buffer], *, if_match: str | None = None) -> str:
        condition = {"IfNoneMatch": "*"} if if_match is None else {"IfMatch": if_match}
        name = self._name(key)
        data = b"".join(body)
        try:
            with translated(key):
                answer = await self._writes.put_object(
                    Bucket=self._bucket, Key=name, Body=data, **condition, **self._encryption.make
                )
                return str(answer["ETag"])
        except NotFound as error:
            raise EtagMismatch(f"object absent, expected etag {if_match}: {key}") from error
        except EtagMismatch as error:
            if if_match is None:
                raise AlreadyExists(f"object exists: {key}") from error
            raise

    async def get(self, key: str) -> bytes:
        return await self._get(key)

    async def get_up_to(self, key: str, position: int, length: int) -> bytes:
        check_range(key, position, length)
        data = await self._get(key, Range=f"bytes={position}-{position + length - 1}")
        if not 1 <= len(data) <= length:
            raise range_beyond(key, position, length)
        return data

    async def list(self, prefix: str, after: str = "", limit: int = LIST_LIMIT_MAX) -> Listing:
        check_listing(prefix, after, limit)
        if self._bucket.endswith(DIRECTORY_BUCKET_END):
            return await self._list_directory(prefix, after, limit)
        place = {"StartAfter": self._prefix + after} if after else {}
        found: Listing = []
        while True:  # a page may have fewer objects than asked for, or none, before the end
            with translated(f"list of {prefix or 'all objects'}"):
                answer = await self._reads.list_objects_v2(
                    Bucket=self._bucket, Prefix=self._prefix + prefix, MaxKeys=limit - len(found), **place
                )
                found += self._listing(answer)
                if len(found) >= limit or not answer.get("IsTruncated"):
                    return found
                place = {"ContinuationToken": answer["NextContinuationToken"]}

    async def _list_directory(self, prefix: str, after: str, limit: int) -> Listing:
        """The listing of a directory bucket, which lists only whole folders, and in no order.

        All objects of the folder are listed. It is a landing store, so they are few.
        """
        full = self._prefix + prefix
        found: Listing = []
        place: dict[str, str] = {}
        while True:
            with translated(f"list of {prefix or 'all objects'}"):
                answer = await self._reads.list_objects_v2(
                    Bucket=self._bucket, Prefix=full[: full.rfind("/") + 1], MaxKeys=LIST_LIMIT_MAX, **place
                )
                listed = self._listing(answer)
            found += [each for each in listed if each.key.startswith(prefix) and each.key > after]
            if not answer.get("IsTruncated"):
                return sorted(found, key=lambda each: each.key)[:limit]
            place = {"ContinuationToken": answer["NextContinuationToken"]}

    def _listing(self, answer: Mapping[str, Any]) -> Listing:
        """The objects in an answer. An answer that is no listing must not look like an empty bucket."""
        if not _LISTING_FIELDS & answer.keys():
            raise KeyError("Name")
        return [
            ObjectInfo(
                key=listed["Key"].removeprefix(self._prefix),
                size_bytes=listed["Size"],
                etag=listed["ETag"],
                modified_ms=int(listed["LastModified"].timestamp() * 1000),
            )
            for listed in answer.get("Contents", [])
        ]

    async def delete(self, keys: Sequence[str]) -> None:
        check_keys(keys)
        if not keys:
            return
        wanted = {"Objects": [{"Key": self._name(key)} for key in keys], "Quiet": True}
        with translated(f"delete of {len(keys)} objects"):
            answer = await self._writes.delete_objects(Bucket=self._bucket, Delete=wanted)
        codes = {
            str(error.get("Key")).removeprefix(self._prefix): str(error.get("Code"))
            for error in answer.get("Errors", [])
            if error.get("Code") not in _ABSENT_CODES
        }
        if codes:
            in_doubt = [key for key in keys if key in codes] or keys
            rejected = [key for key in in_doubt if codes.get(key) in _REJECTED_CODES]
            raise NotDeleted(f"s3 answered {next(iter(codes.values()))}", in_doubt, rejected)

    async def begin_parts(self, key: str, part_bytes: int) -> "S3Parts":
        check_parts(key, part_bytes)
        name = self._name(key)
        with translated(key):
            answer = await self._writes.create_multipart_upload(Bucket=self._bucket, Key=name, **self._encryption.make)
            place = {"Bucket": self._bucket, "Key": name, "UploadId": answer["UploadId"]}
        return S3Parts(self._writes, place, key, part_bytes, self._encryption)

    async def unfinished(self, prefix: str, limit: int = LIST_LIMIT_MAX) -> Sequence[Unfinished]:
        check_listing(prefix, "", limit)
        full = self._prefix + prefix
        is_directory = self._bucket.endswith(DIRECTORY_BUCKET_END)
        with translated(f"uploads to {prefix}"):
            answer = await self._reads.list_multipart_uploads(
                Bucket=self._bucket, Prefix=full[: full.rfind("/") + 1] if is_directory else full, MaxUploads=limit
            )
            begun = [
                Unfinished(
                    key=listed["Key"].removeprefix(self._prefix),
                    name=listed["UploadId"],
                    begun_ms=int(listed["Initiated"].timestamp() * 1000),
                )
                for listed in answer.get("Uploads", [])
                if listed["Key"].startswith(full)
            ]
        return sorted(begun, key=lambda upload: (upload.key, upload.name))[:limit]

    async def abort_unfinished(self, unfinished: Unfinished) -> None:
        name = self._name(unfinished.key)
        with contextlib.suppress(NotFound), translated(unfinished.key):
            await self._writes.abort_multipart_upload(Bucket=self._bucket, Key=name, UploadId=unfinished.name)

    async def close(self) -> None:
        await self._clients.aclose()

    def _name(self, key: str) -> str:
        return self._prefix + check_key(key)

    async def _get(self, key: str, **options: str) -> bytes:
        name = self._name(key)
        with translated(key):
            answer = await self._reads.get_object(Bucket=self._bucket, Key=name, **options, **self._encryption.read)
            async with answer["Body"] as stream:
                data: bytes = await stream.read()
        return data


class S3Parts:
    """One multipart upload."""

    def __init__(
        self, client: Any, place: Mapping[str, str], key: str, part_bytes: int, encryption: Encryption
    ) -> None:
        self._client = client
        self._encryption = encryption
        self._place = place
        self._key = key
        self._sizes = PartSizes(key, part_bytes)
        self._etags: dict[int, str] = {}
        self._is_aborted = False

    async def put_part(self, number: int, body: Sequence[Buffer]) -> None:
        size = self._sizes.check(number, body)
        self._check_alive()
        with translated(self._key):
            answer = await self._client.upload_part(
                **self._place, PartNumber=number + 1, Body=b"".join(body), **self._encryption.read
            )
            self._etags[number] = answer["ETag"]
        self._sizes.record(number, size)

    async def complete(self) -> str:
        """As in every store; but some servers (Ceph) replace an existing object, so large objects need new keys."""
        self._check_alive()
        self._sizes.check_complete()
        parts = [{"PartNumber": number + 1, "ETag": etag} for number, etag in sorted(self._etags.items())]
        try:
            with translated(self._key):
                answer = await self._client.complete_multipart_upload(
                    **self._place, MultipartUpload={"Parts": parts}, IfNoneMatch="*", **self._encryption.read
                )
                return str(answer["ETag"])
        except EtagMismatch as error:
            raise AlreadyExists(f"object exists: {self._key}") from error

    async def abort(self) -> None:
        self._is_aborted = True
        with contextlib.suppress(NotFound), translated(self._key):
            await self._client.abort_multipart_upload(**self._place)

    def _check_alive(self) -> None:
        if self._is_aborted:
            raise NotFound(f"no upload in progress: {self._key}")


def _check_address(bucket: str, options: Mapping[str, str]) -> None:
    unknown = sorted(set(options) - set(OPTIONS))
    if unknown:
        raise Invalid(f"no s3 option {unknown[0]!r}; there are {', '.join(OPTIONS)}")
    if options.get("addressing", ADDRESSINGS[0]) not in ADDRESSINGS:
        raise Invalid(f"s3 addressing is {' or '.join(ADDRESSINGS)}: {options['addressing']!r}")
    if ("access_key" in options) != ("secret_key" in options):
        raise Invalid("s3 options access_key and secret_key go together")
    if not bucket:
        raise Invalid("an s3 address needs a bucket: s3://bucket/prefix")


def _settings(options: Mapping[str, str], limits: S3Limits) -> dict[str, Any]:
    """The settings of a client without its own checks, checksums and retries, because this library has them."""
    endpoint = options.get("endpoint")
    is_plain = endpoint is not None and not endpoint.startswith("https://")
    addressing = options.get("addressing", "path" if endpoint else "virtual")
    config = AioConfig(
        http_session_cls=_PlainSession,
        max_pool_connections=limits.connections_max,
        connect_timeout=limits.connect_timeout_s,
        read_timeout=limits.read_timeout_s,
        retries={"total_max_attempts": 1},
        parameter_validation=False,
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        # https protects the body from changes in transit; over plain http the signature covers it.
        s3={"payload_signing_enabled": is_plain, "addressing_style": addressing},
    )
    return {
        "endpoint_url": endpoint,
        "region_name": options.get("region") or ("us-east-1" if endpoint else None),
        "aws_access_key_id": options.get("access_key"),
        "aws_secret_access_key": options.get("secret_key"),
        "config": config,
    }
