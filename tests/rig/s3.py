"""An S3 server of one bucket, as much of it as s3fs asks for: list, HEAD, GET with a range, PUT and DELETE.
Requests must be signed (by whom they are is looked at, not the signature)."""

import hashlib
import threading
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self, status, body=b"", headers=()):
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        if not any(name == "Content-Length" for name, _ in headers):
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def handle_one(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        s3 = self.server.s3
        signer = self.headers.get("Authorization", "")
        s3.signers.add(signer.partition("Credential=")[2].partition("/")[0])
        parts = urlsplit(self.path)
        bucket, _, key = unquote(parts.path).lstrip("/").partition("/")
        if bucket != s3.bucket or f"Credential={s3.key_id}/" not in signer:
            return self.answer(403, b"<Error><Code>AccessDenied</Code></Error>")
        if not key:
            return self.answer(200, s3.list(parse_qs(parts.query)), [("Content-Type", "application/xml")])
        if self.command == "PUT":
            source = unquote(self.headers.get("x-amz-copy-source", "")).lstrip("/").partition("/")[2]
            meta = {k.lower(): v for k, v in self.headers.items() if k.lower().startswith("x-amz-meta-")}
            s3.objects[key] = (s3.objects[source][0] if source else body, meta)
            etag = hashlib.md5(s3.objects[key][0]).hexdigest()
            return self.answer(200, f"<CopyObjectResult><ETag>{etag}</ETag></CopyObjectResult>".encode()
                               if source else b"", [("ETag", f'"{etag}"')])
        if key not in s3.objects:
            return self.answer(404, b"<Error><Code>NoSuchKey</Code></Error>")
        if self.command == "DELETE":
            del s3.objects[key]
            return self.answer(204)
        content, meta = s3.objects[key]
        headers = [("Last-Modified", formatdate(0, usegmt=True)), *meta.items()]
        if self.command == "HEAD":
            return self.answer(200, headers=[*headers, ("Content-Length", str(len(content)))])
        first, _, last = self.headers.get("Range", "bytes=0-").removeprefix("bytes=").partition("-")
        last = min(int(last or len(content) - 1), len(content) - 1)
        return self.answer(206, content[int(first):last + 1],
                           [*headers, ("Content-Range", f"bytes {first}-{last}/{len(content)}")])

    do_GET = do_HEAD = do_PUT = do_DELETE = handle_one


class S3:
    """with S3("bucket", "KEYID") as s3: … s3.url; s3.objects is {key: (bytes, metadata)}."""

    def __init__(self, bucket, key_id):
        self.bucket, self.key_id, self.objects, self.signers = bucket, key_id, {}, set()
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.s3 = self
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def list(self, query):
        prefix, end = query.get("prefix", [""])[0], query.get("delimiter", [""])[0]
        keys = sorted(k for k in self.objects if k.startswith(prefix))
        inside = [k for k in keys if not end or end not in k[len(prefix):]]
        folders = sorted({prefix + k[len(prefix):].split(end)[0] + end for k in keys if k not in inside})
        return ("<?xml version='1.0'?><ListBucketResult xmlns='http://s3.amazonaws.com/doc/2006-03-01/'>"
                f"<Name>{self.bucket}</Name><Prefix>{escape(prefix)}</Prefix><IsTruncated>false</IsTruncated>"
                + "".join(f"<Contents><Key>{escape(k)}</Key><Size>{len(self.objects[k][0])}</Size></Contents>" for k in inside)
                + "".join(f"<CommonPrefixes><Prefix>{escape(f)}</Prefix></CommonPrefixes>" for f in folders)
                + "</ListBucketResult>").encode()

    def __enter__(self):
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()
