"""A bucket of S3 in this process, for objects of one part."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape


class Handler(BaseHTTPRequestHandler):
    """Objects by name, ranges, `If-None-Match` and listings."""

    protocol_version = "HTTP/1.1"
    objects: dict[str, tuple[bytes, str, str]]
    lock: threading.Lock

    def answer(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    @property
    def key(self) -> str:
        return unquote(urlsplit(self.path).path).removeprefix("/bucket").lstrip("/")

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        with self.lock:
            if self.headers.get("If-None-Match") and self.key in self.objects:
                return self.answer(412)
            tag = f'"{len(self.objects)}-{len(body)}"'
            self.objects[self.key] = (body, tag, self.headers.get("x-amz-meta-cairn", ""))
        self.answer(200, ETag=tag)

    def do_GET(self) -> None:
        if not self.key:
            return self.list()
        if self.key not in self.objects:
            return self.answer(404, b"<Error><Code>NoSuchKey</Code></Error>")
        body, tag, mark = self.objects[self.key]
        found = {"ETag": tag, "Last_Modified": formatdate(usegmt=True), "x_amz_meta_cairn": mark}
        if "Range" not in self.headers:
            return self.answer(200, body, **found)
        first, last = self.headers["Range"].removeprefix("bytes=").split("-")
        part = body[int(first) : int(last) + 1]
        shown = f"bytes {first}-{int(first) + len(part) - 1}/{len(body)}"
        self.answer(206, part, Content_Range=shown, **found)

    do_HEAD = do_GET

    def do_DELETE(self) -> None:
        self.objects.pop(self.key, None)
        self.answer(204)

    def list(self) -> None:
        asked = {name: values[0] for name, values in parse_qs(urlsplit(self.path).query).items()}
        prefix, folders, items = asked.get("prefix", ""), set(), []
        for key, (body, _, _) in sorted(self.objects.items()):
            rest = key.removeprefix(prefix)
            if not key.startswith(prefix):
                continue
            if "delimiter" in asked and "/" in rest:
                folders.add(prefix + rest.split("/")[0] + "/")
            else:
                when = "2026-01-01T00:00:00.000Z"
                items.append(f"<Contents><Key>{escape(key)}</Key><Size>{len(body)}</Size><LastModified>{when}</LastModified></Contents>")
        shown = "".join(items) + "".join(f"<CommonPrefixes><Prefix>{escape(folder)}</Prefix></CommonPrefixes>" for folder in sorted(folders))
        self.answer(200, f"<ListBucketResult><IsTruncated>false</IsTruncated>{shown}</ListBucketResult>".encode())

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def serve() -> Iterator[tuple[dict[str, str], dict[str, tuple[bytes, str, str]]]]:
    """A server: the storage options that reach it, and its objects."""
    objects: dict[str, tuple[bytes, str, str]] = {}
    handler = type("Bound", (Handler,), {"objects": objects, "lock": threading.Lock()})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    options = {
        "endpoint": f"http://127.0.0.1:{server.server_address[1]}",
        "access_key_id": "AK",
        "secret_access_key": "hush",
        "region": "us-east-1",
    }
    try:
        yield options, objects
    finally:
        server.shutdown()
        server.server_close()
