"""Google's XML API over the JSON API of a fake-gcs-server, which lacks most of the XML API.

The conditions are those of the fake-gcs-server. The front only joins the parts of uploads. It is a program.
"""

import itertools
import sys
from collections.abc import AsyncIterator
from urllib.parse import quote, unquote
from xml.sax.saxutils import escape

from aiohttp import ClientSession, web

GENERATION_MATCH = "x-goog-if-generation-match"
COPY_SOURCE = "x-goog-copy-source"
BODY_BYTES_MAX = 1 << 30
PASSED_ON = ("Content-Range", "Last-Modified", "X-Goog-Generation", "Content-Type")


class Front:
    """The handlers, with the parts of uploads by their names."""

    def __init__(self, origin: str) -> None:
        self._origin = origin
        self._names = itertools.count(1)
        self._uploads: dict[str, dict[int, bytes]] = {}
        self._session: ClientSession

    async def run_session(self, _: web.Application) -> AsyncIterator[None]:
        """One pool of connections for the life of the server."""
        async with ClientSession() as self._session:
            yield

    async def listing(self, request: web.Request) -> web.Response:
        """`list-type=2`."""
        query = {"prefix": request.query.get("prefix", ""), "maxResults": request.query.get("max-keys", "1000")}
        start = request.query.get("start-after", "")
        query |= {"startOffset": start} if start else {}
        query |= {"pageToken": request.query["continuation-token"]} if "continuation-token" in request.query else {}
        bucket = request.match_info["bucket"]
        async with self._session.get(f"{self._origin}/storage/v1/b/{bucket}/o", params=query) as answer:
            if answer.status != 200:
                return web.Response(status=answer.status, text="<Error><Code>NoSuchBucket</Code></Error>")
            found = await answer.json()
        contents = "".join(
            f"<Contents><Key>{escape(each['name'])}</Key><Size>{each['size']}</Size>"
            f"<LastModified>{each['updated']}</LastModified><ETag>{escape(quoted(each['etag']))}</ETag></Contents>"
            for each in found.get("items", [])
            if each["name"] > start
        )
        token = found.get("nextPageToken", "")
        more = f"<NextContinuationToken>{escape(token)}</NextContinuationToken>" if token else ""
        return web.Response(text=f"<ListBucketResult>{contents}{more}</ListBucketResult>")

    async def get(self, request: web.Request) -> web.Response:
        """A read of an object or a range, or its head."""
        headers = {"Range": request.headers["Range"]} if "Range" in request.headers else {}
        async with self._session.get(f"{self._object(request)}?alt=media", headers=headers) as answer:
            body = await answer.read()
            kept = {name: answer.headers[name] for name in PASSED_ON if name in answer.headers}
        if answer.status >= 400:
            return web.Response(status=answer.status)
        async with self._session.get(self._object(request)) as described:
            meta = await described.json()
        kept |= {"ETag": quoted(meta["etag"]), "X-Goog-Generation": str(meta["generation"])}
        if request.method == "HEAD":
            return web.Response(status=answer.status, headers=kept | {"Content-Length": str(meta["size"])})
        return web.Response(status=answer.status, headers=kept, body=body)

    async def put(self, request: web.Request) -> web.Response:
        """A put of an object, of a part, or of a copy."""
        if "uploadId" in request.query:
            parts = self._uploads[request.query["uploadId"]]
            parts[int(request.query["partNumber"])] = await request.read()
            return web.Response(headers={"ETag": quoted(request.query["partNumber"])})
        body = await request.read()
        if COPY_SOURCE in request.headers:
            bucket, _, name = unquote(request.headers[COPY_SOURCE]).strip("/").partition("/")
            place = f"{self._origin}/storage/v1/b/{bucket}/o/{quote(name, safe='')}?alt=media"
            async with self._session.get(place) as answer:
                if answer.status != 200:
                    return web.Response(status=answer.status)
                body = await answer.read()
        return await self._stored(request, body)

    async def post(self, request: web.Request) -> web.Response:
        """The begin or the end of an upload in parts."""
        if "uploads" in request.query:
            name = str(next(self._names))
            self._uploads[name] = {}
            return web.Response(
                text=f"<InitiateMultipartUploadResult><UploadId>{name}</UploadId></InitiateMultipartUploadResult>"
            )
        parts = self._uploads.pop(request.query["uploadId"])
        answer = await self._stored(request, b"".join(parts[number] for number in sorted(parts)))
        etag = answer.headers.get("ETag", "")
        text = f"<CompleteMultipartUploadResult><ETag>{escape(etag)}</ETag></CompleteMultipartUploadResult>"
        return web.Response(status=answer.status, text=text, headers={"ETag": etag})

    async def delete(self, request: web.Request) -> web.Response:
        """The end of an object, or of an upload."""
        if "uploadId" in request.query:
            self._uploads.pop(request.query["uploadId"], None)
            return web.Response(status=204)
        async with self._session.delete(self._object(request)) as answer:
            return web.Response(status=204 if answer.status == 200 else answer.status)

    async def _stored(self, request: web.Request, body: bytes) -> web.Response:
        query = {"uploadType": "media", "name": request.match_info["name"]}
        if GENERATION_MATCH in request.headers:
            query["ifGenerationMatch"] = request.headers[GENERATION_MATCH]
        place = f"{self._origin}/upload/storage/v1/b/{request.match_info['bucket']}/o"
        headers = {"Content-Type": "application/octet-stream"}
        async with self._session.post(place, params=query, data=body, headers=headers) as answer:
            if answer.status != 200:
                return web.Response(status=answer.status, text=await answer.text())
            stored = await answer.json()
        return web.Response(headers={"ETag": quoted(stored["etag"]), "X-Goog-Generation": str(stored["generation"])})

    def _object(self, request: web.Request) -> str:
        name = quote(request.match_info["name"], safe="")
        return f"{self._origin}/storage/v1/b/{request.match_info['bucket']}/o/{name}"


def quoted(etag: str) -> str:
    """The etag with quotes, as headers have it."""
    return f'"{etag.strip(chr(34))}"'


def main(host: str, port: int, origin_port: int) -> None:
    """Serve until the end of the process."""
    front = Front(f"http://{host}:{origin_port}")
    application = web.Application(client_max_size=BODY_BYTES_MAX)
    application.cleanup_ctx.append(front.run_session)
    application.router.add_get("/{bucket}", front.listing)
    application.router.add_get("/{bucket}/", front.listing)
    application.router.add_get("/{bucket}/{name:.+}", front.get)  # also HEAD
    application.router.add_put("/{bucket}/{name:.+}", front.put)
    application.router.add_post("/{bucket}/{name:.+}", front.post)
    application.router.add_delete("/{bucket}/{name:.+}", front.delete)
    web.run_app(application, host=host, port=port, print=None, access_log=None)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
