"""An object store on 127.0.0.1 for the tests of uploads: the part of S3 that the program uses, by Python's standard
library alone. It verifies signatures (version 4), payload hashes and checksums as the real ones do, and fails as it is
told to.

    s3_endpoint.py DIRECTORY [--port N] [--no-checksums] [--region NAME]
                                                   prints its port, serves until its standard input is closed

A bucket is a folder DIRECTORY/BUCKET that the test makes, asked for in the path or as BUCKET.localhost; an object is
DIRECTORY/BUCKET/KEY, each byte of KEY that is no letter or digit quoted but - _ . ~ and its slashes as %2F. Uploads in
parts lie in DIRECTORY/.uploads, so the server may be stopped and started again. DIRECTORY/requests gets a line for each
request: method, path with query, status.

Users: AKTEST with the secret sec/ret+1, and AKREADER/reader, who may not write. The roles of instances (IMDSv2, at
http://127.0.0.1:PORT) and containers (/container, for who says "Authorization: container") give keys for ROLE_SECONDS
(environment; 3600), with a session's token that is asked for then.

Faults: DIRECTORY/faults holds JSON: {"share": 0.05} fails such a part of all requests, one way or another;
{"next": [{"kind": "503", "count": 2, "method": "PUT", "match": "partNumber=2"}]} the next ones that match. Kinds: 500,
503, reset (in the middle of what is sent), lost (all is done, but nothing answered), truncated (half of what is got),
slow ("seconds"), damaged (a byte of what is got is another), none (so that a later rule takes a later request).
"""
import argparse
import base64
import ctypes
import ctypes.util
import datetime
import hashlib
import hmac
import http.server
import json
import os
import pathlib
import random
import re
import socket
import struct
import sys
import threading
import time
import urllib.parse
import uuid
import xml.etree.ElementTree
from xml.sax.saxutils import escape

parser = argparse.ArgumentParser()
parser.add_argument("directory", type=pathlib.Path)
parser.add_argument("--port", type=int, default=0)
parser.add_argument("--no-checksums", action="store_true")
parser.add_argument("--region", default="us-east-1")
parser.add_argument("--min-part", type=int, default=5 << 20)
options = parser.parse_args()
root = options.directory
uploads = root / ".uploads"
lock = threading.RLock()
users = {"AKTEST": ("sec/ret+1", None, None), "AKREADER": ("reader", None, None)}  # secret, token, end
dice = random.Random(1)
faults = {"stamp": None, "share": 0.0, "next": []}

isal = None if options.no_checksums else ctypes.util.find_library("isal")
if isal:
    isal = ctypes.CDLL(isal)
    isal.crc32_iscsi.argtypes = [ctypes.c_char_p, ctypes.c_int, ctypes.c_uint]
    isal.crc32_iscsi.restype = ctypes.c_uint


def crc32c(data):
    value = isal.crc32_iscsi(data, len(data), 0xFFFFFFFF) ^ 0xFFFFFFFF
    return base64.b64encode(struct.pack(">I", value)).decode()


def quote(text, safe=""):
    return urllib.parse.quote(text, safe=safe + "-_.~")


class Failure(Exception):
    def __init__(self, status, code, message="", headers=()):
        self.status, self.code, self.message, self.headers = status, code, message, headers


class Cut(Exception):
    """The connection ends here."""


def new_role_keys():
    seconds = float(os.environ.get("ROLE_SECONDS", "3600"))
    end = time.time() + seconds
    key, secret, token = "ASIA" + uuid.uuid4().hex[:16], uuid.uuid4().hex, uuid.uuid4().hex * 20
    users[key] = (secret, token, end)
    stamp = datetime.datetime.fromtimestamp(end, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {"Code": "Success", "AccessKeyId": key, "SecretAccessKey": secret, "Token": token, "Expiration": stamp}


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 60

    def log_message(self, *arguments):
        pass

    def note(self, status):
        with lock, open(root / "requests", "a") as file:
            file.write(f"{self.command} {self.path} {status}\n")

    # ---- faults

    def choose_fault(self):
        with lock:
            try:
                stamp = os.stat(root / "faults").st_mtime_ns
                if stamp != faults["stamp"]:
                    told = json.loads((root / "faults").read_text() or "{}")
                    faults.update(stamp=stamp, share=told.get("share", 0), next=told.get("next", []))
            except FileNotFoundError:
                return None
            for rule in faults["next"]:
                fits = rule.get("method", self.command) == self.command and rule.get("match", "") in self.path
                if fits and rule.get("count", 1) > 0:
                    rule["count"] = rule.get("count", 1) - 1
                    return rule
            if dice.random() < faults["share"]:
                kinds = ["500", "503", "reset", "lost"] + (["truncated"] if self.command == "GET" else [])
                return {"kind": dice.choice(kinds)}
        return None

    def cut(self):
        linger = struct.pack("ii", 1, 0)  # RST, and not an orderly end
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        self.close_connection = True
        self.note("cut")
        raise Cut

    # ---- who asks

    def signature_parts(self):
        match = re.fullmatch(
            r"AWS4-HMAC-SHA256 Credential=([^,]+), ?SignedHeaders=([^,]+), ?Signature=([0-9a-f]{64})",
            self.headers.get("Authorization", ""),
        )
        if not match:
            raise Failure(403, "AccessDenied", "no signature of version 4")
        return match.groups()

    def check_time(self, date):
        try:
            then = datetime.datetime.strptime(date, "%Y%m%dT%H%M%SZ").replace(tzinfo=datetime.timezone.utc)
        except ValueError:
            raise Failure(403, "AccessDenied", "no x-amz-date") from None
        if abs(time.time() + float(os.environ.get("CLOCK_AHEAD", "0")) - then.timestamp()) > 900:
            raise Failure(403, "RequestTimeTooSkewed", "The difference between the times is too large.")

    def check_scope(self, key, day, region, service, end, date):
        if region != options.region:
            raise Failure(400, "AuthorizationHeaderMalformed", f"the region is {options.region}",
                          [("x-amz-bucket-region", options.region)])
        if (day, service, end) != (date[:8], "s3", "aws4_request"):
            raise Failure(400, "AuthorizationHeaderMalformed", "a wrong scope")
        if key not in users:
            raise Failure(403, "InvalidAccessKeyId", "The AWS Access Key Id does not exist in our records.")
        secret, token, until = users[key]
        if self.headers.get("x-amz-security-token") != token:
            raise Failure(403, "InvalidToken", "The provided token is malformed or otherwise invalid.")
        if until is not None and time.time() > until:
            raise Failure(400, "ExpiredToken", "The provided token has expired.")
        return secret

    def canonical_request(self, names, payload):
        headers = ""
        for name in names:
            values = [re.sub(" +", " ", value.strip()) for value in self.headers.get_all(name, [])]
            headers += f"{name}:{','.join(values)}\n"
        pairs = []
        for word in filter(None, self.query_text.split("&")):
            name, _, value = word.partition("=")
            pairs.append((quote(urllib.parse.unquote(name)), quote(urllib.parse.unquote(value))))
        query = "&".join(f"{name}={value}" for name, value in sorted(pairs))
        path = quote(urllib.parse.unquote(self.path_text), "/")
        return "\n".join([self.command, path, query, headers, ";".join(names), payload])

    def check_signature(self):
        """The payload's hash as it was signed."""
        credential, signed, signature = self.signature_parts()
        key, day, region, service, end = credential.rsplit("/", 4)
        date = self.headers.get("x-amz-date", "")
        self.check_time(date)
        secret = self.check_scope(key, day, region, service, end, date)
        payload, names = self.headers.get("x-amz-content-sha256", ""), signed.split(";")
        unsigned = [name for name in map(str.lower, self.headers) if name.startswith("x-amz-") and name not in names]
        if names != sorted(names) or "host" not in names or unsigned or not re.fullmatch("[0-9a-f]{64}", payload):
            raise Failure(403, "AccessDenied", f"not signed: {unsigned}, or no hash of the payload")
        digest = hashlib.sha256(self.canonical_request(names, payload).encode()).hexdigest()
        text = "\n".join(["AWS4-HMAC-SHA256", date, f"{day}/{region}/{service}/{end}", digest])
        chain = ("AWS4" + secret).encode()
        for word in (day, region, service, end, text):
            chain = hmac.new(chain, word.encode(), hashlib.sha256).digest()
        if not hmac.compare_digest(chain.hex(), signature):
            raise Failure(403, "SignatureDoesNotMatch", "The signature we calculated is another.")
        if key == "AKREADER" and self.command not in ("GET", "HEAD"):
            raise Failure(403, "AccessDenied", "Access Denied")
        return payload

    # ---- bodies and answers

    def handle_expect_100(self):
        return True  # only when the signature is good

    def read_body(self, payload):
        if "Content-Length" not in self.headers:
            if self.command in ("PUT", "POST"):
                raise Failure(411, "MissingContentLength")
            if payload != hashlib.sha256(b"").hexdigest():
                raise Failure(400, "XAmzContentSHA256Mismatch")
            return b""
        size = int(self.headers["Content-Length"])
        if size and self.headers.get("Expect", "").lower() == "100-continue":
            self.send_response_only(100)
            self.end_headers()
        if self.fault == "reset" and size:
            self.rfile.read(size // 2)
            self.cut()
        body = self.rfile.read(size)
        self.body_is_read = True
        if len(body) < size:
            raise Cut
        if hashlib.sha256(body).hexdigest() != payload:
            raise Failure(400, "XAmzContentSHA256Mismatch")
        told = self.headers.get("x-amz-checksum-crc32c")
        self.sum_headers = []
        if told and isal:
            if crc32c(body) != told:
                raise Failure(400, "BadDigest", "The CRC32C you specified did not match.")
            self.sum_headers = [("x-amz-checksum-crc32c", told)]
        return body

    def answer(self, status, body=b"", headers=(), length=None):
        if self.fault == "lost":
            self.cut()
        self.note(status)
        if not self.body_is_read and int(self.headers.get("Content-Length") or 0):
            self.close_connection = True
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        if self.close_connection:
            self.send_header("Connection", "close")
        if status != 204:
            self.send_header("Content-Length", str(len(body) if length is None else length))
        self.end_headers()
        if self.fault == "damaged" and body:
            body = body[:-1] + bytes([body[-1] ^ 1])
        if self.fault == "truncated" and len(body) > 1:
            self.wfile.write(body[: len(body) // 2])
            self.close_connection = True
        elif self.command != "HEAD":
            self.wfile.write(body)

    def respond(self):
        self.path_text, _, self.query_text = self.path.partition("?")
        self.query = dict(urllib.parse.parse_qsl(self.query_text, keep_blank_values=True))
        self.body_is_read, self.sum_headers = False, []
        try:
            if self.path_text.startswith(("/latest/", "/container")):
                return self.respond_role()
            fault = self.choose_fault() or {}
            self.fault = fault.get("kind")
            if self.fault == "slow":
                time.sleep(fault.get("seconds", 0.3))
            if self.fault in ("500", "503"):
                raise Failure(int(self.fault), "SlowDown" if self.fault == "503" else "InternalError", "on request")
            payload = self.check_signature()
            body = self.read_body(payload)
            if self.fault == "reset":
                self.cut()
            host, place = self.headers["Host"], urllib.parse.unquote(self.path_text).lstrip("/")
            virtual = host.split(".localhost")[0] if ".localhost" in host else None
            bucket, key = (virtual, place) if virtual else place.partition("/")[::2]
            self.folder = root / bucket
            if not bucket or bucket.startswith(".") or not self.folder.is_dir():
                raise Failure(404, "NoSuchBucket", "The specified bucket does not exist")
            getattr(self, f"{self.command.lower()}_{'object' if key else 'bucket'}")(key, body)
        except Failure as failure:
            text = f"<Error><Code>{failure.code}</Code><Message>{escape(failure.message)}</Message></Error>"
            self.answer(failure.status, text.encode(), failure.headers)
        except (Cut, ConnectionError, TimeoutError):
            self.close_connection = True

    do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = respond

    def respond_role(self):
        self.fault = None
        role_path = "/latest/meta-data/iam/security-credentials/"
        if self.command == "PUT" and self.path == "/latest/api/token":
            if not self.headers.get("X-aws-ec2-metadata-token-ttl-seconds"):
                return self.answer(400)
            return self.answer(200, b"session-of-imds")
        if self.path.startswith("/container"):
            good = self.headers.get("Authorization") == "container"
            return self.answer(200, json.dumps(new_role_keys()).encode()) if good else self.answer(401)
        if self.headers.get("X-aws-ec2-metadata-token") != "session-of-imds":
            return self.answer(401)
        if self.path == role_path:
            return self.answer(200, b"trainer")
        if self.path == role_path + "trainer":
            return self.answer(200, json.dumps(new_role_keys()).encode())
        return self.answer(404)

    # ---- buckets

    def get_bucket(self, _key, _body):
        """ListObjectsV2, in pages of at most 3, so that tests see several."""
        prefix, after = self.query.get("prefix", ""), self.query.get("continuation-token", "")
        keys = sorted(urllib.parse.unquote(path.name) for path in self.folder.iterdir() if path.is_file())
        keys = [key for key in keys if key.startswith(prefix) and key > after]
        items = ""
        for key in keys[:3]:
            size = (self.folder / quote(key)).stat().st_size
            items += f"<Contents><Key>{escape(key)}</Key><Size>{size}</Size></Contents>"
        more = f"<NextContinuationToken>{escape(keys[2])}</NextContinuationToken>" if len(keys) > 3 else ""
        truncated = str(len(keys) > 3).lower()
        self.answer(200, f"<ListBucketResult><IsTruncated>{truncated}</IsTruncated>{items}{more}</ListBucketResult>"
                    .encode())

    # ---- objects

    def meta_path(self, key):
        return self.folder / ".meta" / quote(key)

    def keep(self, key, data, etag, meta):
        (self.folder / ".meta").mkdir(exist_ok=True)
        with lock:
            part = self.folder / ".meta" / f".{uuid.uuid4().hex}"
            part.write_bytes(data)
            self.meta_path(key).write_text(json.dumps({"etag": etag, "meta": meta}))
            part.replace(self.folder / quote(key))

    def own_headers(self):
        return [[name.lower(), value] for name, value in self.headers.items() if name.lower().startswith("x-amz-meta-")]

    def put_object(self, key, body):
        etag = hashlib.md5(body).hexdigest()
        if "uploadId" in self.query:
            return self.put_part(body, etag)
        self.keep(key, body, etag, self.own_headers())
        self.answer(200, headers=[("ETag", f'"{etag}"')] + self.sum_headers)

    def head_object(self, key, body):
        self.get_object(key, body)

    def get_object(self, key, _body):
        if "uploadId" in self.query:
            return self.list_parts()
        try:
            with lock:
                data = (self.folder / quote(key)).read_bytes()
                about = json.loads(self.meta_path(key).read_text())
        except FileNotFoundError:
            raise Failure(404, "NoSuchKey", "The specified key does not exist.") from None
        headers = [("ETag", f'"{about["etag"]}"')] + [tuple(pair) for pair in about["meta"]]
        if self.headers.get("If-Match", f'"{about["etag"]}"') != f'"{about["etag"]}"':
            raise Failure(412, "PreconditionFailed")
        match = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        if not match:
            return self.answer(200, data, headers)
        begin, end = int(match[1]), min(int(match[2]), len(data) - 1)
        if begin > end:
            raise Failure(416, "InvalidRange")
        headers.append(("Content-Range", f"bytes {begin}-{end}/{len(data)}"))
        self.answer(206, data[begin : end + 1], headers)

    def delete_object(self, key, _body):
        if "uploadId" in self.query:
            folder = self.upload_folder()
            for path in folder.iterdir():
                path.unlink()
            folder.rmdir()
        else:
            (self.folder / quote(key)).unlink(missing_ok=True)
            self.meta_path(key).unlink(missing_ok=True)
        self.answer(204)

    # ---- uploads in parts

    def upload_folder(self):
        folder = uploads / self.query["uploadId"]
        if not re.fullmatch("[0-9a-f]+", self.query["uploadId"]) or not folder.is_dir():
            raise Failure(404, "NoSuchUpload", "The specified multipart upload does not exist.")
        return folder

    def put_part(self, body, etag):
        number = int(self.query["partNumber"])
        if not 1 <= number <= 10000:
            raise Failure(400, "InvalidArgument", "partNumber")
        (self.upload_folder() / f"{number:05}").write_bytes(body)
        self.answer(200, headers=[("ETag", f'"{etag}"')] + self.sum_headers)

    def parts(self):
        return {int(path.name): path.read_bytes() for path in self.upload_folder().iterdir() if path.name.isdigit()}

    def list_parts(self):
        """In pages of at most 2."""
        after = int(self.query.get("part-number-marker", "0"))
        parts = [(number, data) for number, data in sorted(self.parts().items()) if number > after]
        items = ""
        for number, data in parts[:2]:
            total = f"<ChecksumCRC32C>{crc32c(data)}</ChecksumCRC32C>" if isal else ""
            etag = hashlib.md5(data).hexdigest()
            items += f"<Part><PartNumber>{number}</PartNumber><ETag>&quot;{etag}&quot;</ETag>{total}"
            items += f"<Size>{len(data)}</Size></Part>"
        truncated = str(len(parts) > 2).lower()
        marker = f"<NextPartNumberMarker>{parts[:2][-1][0]}</NextPartNumberMarker>" if parts else ""
        self.answer(200, f"<ListPartsResult>{items}<IsTruncated>{truncated}</IsTruncated>{marker}</ListPartsResult>"
                    .encode())

    def post_object(self, key, body):
        if "uploads" in self.query:
            name = uuid.uuid4().hex
            (uploads / name).mkdir(parents=True)
            (uploads / name / "about").write_text(json.dumps(self.own_headers()))
            text = f"<InitiateMultipartUploadResult><UploadId>{name}</UploadId></InitiateMultipartUploadResult>"
            return self.answer(200, text.encode())
        folder, parts = self.upload_folder(), self.parts()
        listed = [(int(part.find("PartNumber").text), part.find("ETag").text.strip('"'),
                   part.findtext("ChecksumCRC32C")) for part in xml.etree.ElementTree.fromstring(body)]
        for number, etag, total in listed:
            if number not in parts or hashlib.md5(parts[number]).hexdigest() != etag:
                raise Failure(400, "InvalidPart", f"part {number}")
            if isal and total != crc32c(parts[number]):
                raise Failure(400, "InvalidPart", f"no CRC32C of part {number}, or another")
            if number != listed[-1][0] and len(parts[number]) < options.min_part:
                raise Failure(400, "EntityTooSmall", f"part {number}")
        if [number for number, _, _ in listed] != sorted({number for number, _, _ in listed}) or not listed:
            raise Failure(400, "InvalidPartOrder")
        sums = b"".join(bytes.fromhex(etag) for _, etag, _ in listed)
        etag = f"{hashlib.md5(sums).hexdigest()}-{len(listed)}"
        data = b"".join(parts[number] for number, _, _ in listed)
        self.keep(key, data, etag, json.loads((folder / "about").read_text()))
        for path in folder.iterdir():
            path.unlink()
        folder.rmdir()
        self.answer(200, f"<CompleteMultipartUploadResult><ETag>&quot;{etag}&quot;</ETag>"
                    f"</CompleteMultipartUploadResult>".encode())

    # The server's own Date may be ahead.
    def date_time_string(self, timestamp=None):
        return super().date_time_string((timestamp or time.time()) + float(os.environ.get("CLOCK_AHEAD", "0")))


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True

    def handle_error(self, request, client_address):
        if not isinstance(sys.exc_info()[1], (ConnectionError, OSError, ValueError)):
            super().handle_error(request, client_address)


uploads.mkdir(parents=True, exist_ok=True)
server = Server(("127.0.0.1", options.port), Handler)
threading.Thread(target=server.serve_forever, daemon=True).start()
print(server.server_port, flush=True)
sys.stdin.read()
