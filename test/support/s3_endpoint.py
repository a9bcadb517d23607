# SPDX-License-Identifier: BSD-3-Clause
"""An S3 server on 127.0.0.1 for tests of uploads; uses only Python's standard library. It verifies signatures of version 4
(header or presigned URL), payload hashes and Content-MD5, and fails on request.

    s3_endpoint.py DIRECTORY [--port N] [--region NAME]     prints its port; serves until its standard input is closed

A bucket is a folder DIRECTORY/BUCKET that the test creates; an object is the file DIRECTORY/BUCKET/KEY with KEY
percent-encoded (slashes are %2F). DIRECTORY/requests gets one line per request: method, path with query, status.

Users: AKTEST with the secret sec/ret+1, and AKREADER/reader, which may not write. The role of an instance (IMDSv2, at
http://127.0.0.1:PORT) and of a container (/container, with "Authorization: container") gives temporary keys.

Faults: DIRECTORY/faults holds JSON. {"share": 0.05} fails this share of the requests. {"next": [{"kind": "503", "count": 2,
"method": "PUT", "match": "step-"}]} fails the next matching ones. Kinds: 403, 500, 503, reset (in the middle of a body),
lost (performed, but not answered), truncated (half of the answer's body), damaged (one byte of the body is wrong), slow
("seconds"), endless (a listing whose pages never end).
"""
import argparse
import base64
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
parser.add_argument("--region", default="us-east-1")
options = parser.parse_args()
root = options.directory
uploads = root / ".uploads"
lock = threading.RLock()
users = {"AKTEST": ("sec/ret+1", None), "AKREADER": ("reader", None)}  # secret, session token
dice = random.Random(1)
faults = {"stamp": None, "share": 0.0, "next": []}
LEAST_PART = 5 << 20
LISTING_PAGE = 3


def quote(text, safe=""):
    return urllib.parse.quote(text, safe=safe + "-_.~")


class Failure(Exception):
    def __init__(self, status, code, message=""):
        self.status, self.code, self.message = status, code, message


class Cut(Exception):
    """The connection ends here."""


def new_role_keys():
    key, secret, token = "ASIA" + uuid.uuid4().hex[:16], uuid.uuid4().hex, uuid.uuid4().hex * 20
    users[key] = (secret, token)
    end = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(hours=1)
    return json.dumps({"Code": "Success", "AccessKeyId": key, "SecretAccessKey": secret, "Token": token,
                       "Expiration": end.strftime("%Y-%m-%dT%H:%M:%SZ")}).encode()


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
            except FileNotFoundError:
                return {}
            if stamp != faults["stamp"]:
                orders = json.loads((root / "faults").read_text() or "{}")
                faults.update(stamp=stamp, share=orders.get("share", 0), next=orders.get("next", []))
            for rule in faults["next"]:
                fits = rule.get("method", self.command) == self.command and rule.get("match", "") in self.path
                if fits and rule.get("count", 1) > 0:
                    rule["count"] = rule.get("count", 1) - 1
                    return rule
            kinds = ["500", "503", "reset", "lost"] + (["truncated"] if self.command == "GET" else [])
            return {"kind": dice.choice(kinds)} if dice.random() < faults["share"] else {}

    def cut(self):
        linger = struct.pack("ii", 1, 0)  # send RST
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        self.close_connection = True
        self.note("cut")
        raise Cut

    # ---- signatures

    def check_signature(self):
        """Returns the declared hash of the payload."""
        presigned = "X-Amz-Signature" in self.query
        if presigned:
            credential, names, signature, date = (
                self.query[f"X-Amz-{name}"] for name in ("Credential", "SignedHeaders", "Signature", "Date"))
            payload = "UNSIGNED-PAYLOAD"
        else:
            match = re.fullmatch(
                r"AWS4-HMAC-SHA256 Credential=([^,]+), ?SignedHeaders=([^,]+), ?Signature=([0-9a-f]{64})",
                self.headers.get("Authorization", ""))
            if not match or "x-amz-content-sha256" not in self.headers:
                raise Failure(403, "AccessDenied", "no signature of version 4")
            credential, names, signature = match.groups()
            payload, date = self.headers["x-amz-content-sha256"], self.headers.get("x-amz-date", "")
        then = datetime.datetime.strptime(date, "%Y%m%dT%H%M%SZ").replace(tzinfo=datetime.timezone.utc)
        if abs(time.time() - then.timestamp()) > 900:
            raise Failure(403, "RequestTimeTooSkewed", "The difference between the times is too large.")
        key, day, region, service, end = credential.rsplit("/", 4)
        if (day, region, service, end) != (date[:8], options.region, "s3", "aws4_request"):
            raise Failure(400, "AuthorizationHeaderMalformed", f"the region is {options.region}")
        if key not in users:
            raise Failure(403, "InvalidAccessKeyId", "The AWS Access Key Id does not exist in our records.")
        secret, token = users[key]
        if self.headers.get("x-amz-security-token", self.query.get("X-Amz-Security-Token")) != token:
            raise Failure(403, "InvalidToken", "The provided token is malformed or otherwise invalid.")
        names = names.split(";")
        must = {name.lower() for name in self.headers if name.lower().startswith("x-amz-")} | {"host"}
        if not presigned and not must <= set(names):
            raise Failure(403, "AccessDenied", f"not signed: {sorted(must - set(names))}")
        headers = "".join(f"{name}:{','.join(' '.join(value.split()) for value in self.headers.get_all(name, []))}\n"
                          for name in names)
        pairs = sorted((quote(name), quote(value)) for name, value in self.query.items() if name != "X-Amz-Signature")
        canonical = "\n".join([self.command, quote(urllib.parse.unquote(self.path_text), "/"),
                               "&".join(f"{name}={value}" for name, value in pairs), headers, ";".join(names), payload])
        text = "\n".join(["AWS4-HMAC-SHA256", date, f"{day}/{region}/s3/aws4_request",
                          hashlib.sha256(canonical.encode()).hexdigest()])
        chain = b"AWS4" + secret.encode()
        for word in (day, region, "s3", "aws4_request", text):
            chain = hmac.new(chain, word.encode(), hashlib.sha256).digest()
        if not hmac.compare_digest(chain.hex(), signature):
            raise Failure(403, "SignatureDoesNotMatch", "The signature we calculated does not match.")
        if key == "AKREADER" and self.command not in ("GET", "HEAD"):
            raise Failure(403, "AccessDenied", "Access Denied")
        return payload

    # ---- bodies and answers

    def handle_expect_100(self):
        return True  # only when the signature is good

    def read_body(self, payload):
        size = int(self.headers.get("Content-Length") or 0)
        if size and self.headers.get("Expect", "").lower() == "100-continue":
            self.send_response_only(100)
            self.end_headers()
        if self.fault == "reset":
            self.rfile.read(size // 2)
            self.cut()
        body = self.rfile.read(size)
        self.body_is_read = True
        if len(body) < size:
            raise Cut
        if payload != "UNSIGNED-PAYLOAD" and hashlib.sha256(body).hexdigest() != payload:
            raise Failure(400, "XAmzContentSHA256Mismatch")
        md5 = self.headers.get("Content-MD5")
        if md5 and base64.b64decode(md5) != hashlib.md5(body).digest():
            raise Failure(400, "BadDigest", "The Content-MD5 you specified did not match what we received.")
        return body

    def answer(self, status, body=b"", headers=()):
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
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.fault == "damaged" and body:
            body = body[:-1] + bytes([body[-1] ^ 1])
        if self.fault == "truncated" and len(body) > 1:
            body = body[: len(body) // 2]
            self.close_connection = True
        if self.command != "HEAD":
            self.wfile.write(body)

    def answer_xml(self, name, text):
        xmlns = "http://s3.amazonaws.com/doc/2006-03-01/"
        self.answer(200, f'<?xml version="1.0"?>\n<{name} xmlns="{xmlns}">{text}</{name}>'.encode())

    def respond(self):
        self.path_text, _, query = self.path.partition("?")
        self.query = dict(urllib.parse.parse_qsl(query, keep_blank_values=True))
        self.body_is_read, self.fault = False, None
        try:
            if self.path_text.startswith(("/latest/", "/container")):
                return self.respond_role()
            fault = self.choose_fault()
            self.fault = fault.get("kind")
            if self.fault == "slow":
                time.sleep(fault.get("seconds", 0.3))
            if self.fault in ("403", "500", "503"):
                codes = {"403": "AccessDenied", "500": "InternalError", "503": "SlowDown"}
                raise Failure(int(self.fault), codes[self.fault], "on request")
            body = self.read_body(self.check_signature())
            bucket, _, key = urllib.parse.unquote(self.path_text).lstrip("/").partition("/")
            self.folder = root / bucket
            if not bucket or bucket.startswith(".") or not self.folder.is_dir():
                raise Failure(404, "NoSuchBucket", "The specified bucket does not exist")
            getattr(self, f"{self.command.lower()}_{'object' if key else 'bucket'}")(key, body)
        except Failure as failure:
            text = f"<Error><Code>{failure.code}</Code><Message>{escape(failure.message)}</Message></Error>"
            self.answer(failure.status, text.encode())
        except (Cut, ConnectionError, TimeoutError):
            self.close_connection = True

    do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = respond

    def respond_role(self):
        role_path = "/latest/meta-data/iam/security-credentials/"
        if self.command == "PUT" and self.path == "/latest/api/token":
            return self.answer(200, b"session-of-imds", [("X-Aws-Ec2-Metadata-Token-Ttl-Seconds", "21600")])
        if self.path.startswith("/container"):
            good = self.headers.get("Authorization") == "container"
            return self.answer(200, new_role_keys()) if good else self.answer(401)
        if self.headers.get("X-aws-ec2-metadata-token") != "session-of-imds":
            return self.answer(401)
        if self.path == role_path:
            return self.answer(200, b"trainer")
        return self.answer(200, new_role_keys()) if self.path == role_path + "trainer" else self.answer(404)

    # ---- buckets

    def get_bucket(self, _key, _body):
        """ListObjects, versions 1 and 2, in small pages."""
        prefix, delimiter = self.query.get("prefix", ""), self.query.get("delimiter", "")
        after = self.query.get("continuation-token") or self.query.get("marker") or ""
        if self.fault == "endless":
            name = f"{prefix}step-{uuid.uuid4().int % 10**8:08}.h5"
            faults["next"].insert(0, {"kind": "endless", "method": "GET", "match": "?"})
            return self.answer_xml("ListBucketResult", f"<IsTruncated>true</IsTruncated><NextMarker>{name}</NextMarker>"
                                   f"<NextContinuationToken>{name}</NextContinuationToken>" + self.entry(name, 1))
        keys = sorted(urllib.parse.unquote(path.name) for path in self.folder.iterdir() if path.is_file())
        names = []  # keys, and folders as prefixes
        for key in keys:
            end = key.find(delimiter, len(prefix)) if delimiter else -1
            name = key if end < 0 else key[: end + 1]
            if key.startswith(prefix) and name > after and name not in names:
                names.append(name)
        page = names[:LISTING_PAGE]
        text = f"<IsTruncated>{str(len(names) > LISTING_PAGE).lower()}</IsTruncated>"
        if len(names) > LISTING_PAGE:
            last = escape(page[-1])
            text += f"<NextMarker>{last}</NextMarker><NextContinuationToken>{last}</NextContinuationToken>"
        for name in page:
            if delimiter and name.endswith(delimiter):
                text += f"<CommonPrefixes><Prefix>{escape(name)}</Prefix></CommonPrefixes>"
            else:
                text += self.entry(name, (self.folder / quote(name)).stat().st_size)
        self.answer_xml("ListBucketResult", text)

    def entry(self, key, size):
        return (f"<Contents><Key>{escape(key)}</Key><Size>{size}</Size>"
                f"<LastModified>2026-01-01T00:00:00.000Z</LastModified></Contents>")

    # ---- objects

    def keep(self, key, data, etag, meta):
        about = self.folder / ".meta" / quote(key)
        about.parent.mkdir(exist_ok=True)
        with lock:
            part = self.folder / ".meta" / f".{uuid.uuid4().hex}"
            part.write_bytes(data)
            about.write_text(json.dumps({"etag": etag, "meta": meta}))
            part.replace(self.folder / quote(key))

    def own_headers(self):
        """An object's metadata: from headers, or signed as part of the URL."""
        words = list(self.headers.items()) + list(self.query.items())
        return [[name.lower(), value] for name, value in words if name.lower().startswith("x-amz-meta-")]

    def put_object(self, key, body):
        etag = hashlib.md5(body).hexdigest()
        if "uploadId" in self.query:
            (self.upload_folder() / f"{int(self.query['partNumber']):05}").write_bytes(body)
        else:
            self.keep(key, body, etag, self.own_headers())
        self.answer(200, headers=[("ETag", f'"{etag}"')])

    def head_object(self, key, body):
        self.get_object(key, body)

    def get_object(self, key, _body):
        try:
            with lock:
                data = (self.folder / quote(key)).read_bytes()
                about = json.loads((self.folder / ".meta" / quote(key)).read_text())
        except FileNotFoundError:
            raise Failure(404, "NoSuchKey", "The specified key does not exist.") from None
        headers = [("ETag", f'"{about["etag"]}"'), ("Last-Modified", "Thu, 01 Jan 2026 00:00:00 GMT"),
                   *map(tuple, about["meta"])]
        match = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if not match:
            return self.answer(200, data, headers)
        begin, end = int(match[1]), min(int(match[2] or len(data)), len(data) - 1)
        if begin > end:
            raise Failure(416, "InvalidRange")
        headers.append(("Content-Range", f"bytes {begin}-{end}/{len(data)}"))
        self.answer(206, data[begin : end + 1], headers)

    def delete_object(self, key, _body):
        if "uploadId" in self.query:
            self.remove_upload(self.upload_folder())
        else:
            (self.folder / quote(key)).unlink(missing_ok=True)
        self.answer(204)

    # ---- multipart uploads

    def upload_folder(self):
        folder = uploads / self.query["uploadId"]
        if not re.fullmatch("[0-9a-f]+", self.query["uploadId"]) or not folder.is_dir():
            raise Failure(404, "NoSuchUpload", "The specified multipart upload does not exist.")
        return folder

    def remove_upload(self, folder):
        for path in folder.iterdir():
            path.unlink()
        folder.rmdir()

    def post_object(self, key, body):
        if "uploads" in self.query:
            name = uuid.uuid4().hex
            (uploads / name).mkdir(parents=True)
            (uploads / name / "about").write_text(json.dumps(self.own_headers()))
            return self.answer_xml("InitiateMultipartUploadResult", f"<UploadId>{name}</UploadId>")
        folder, data, sums = self.upload_folder(), b"", b""
        listed = [{child.tag.split("}")[-1]: child.text for child in part}
                  for part in xml.etree.ElementTree.fromstring(body)]
        for number, part in enumerate(listed, 1):
            content = (folder / f"{number:05}").read_bytes()
            if int(part["PartNumber"]) != number or hashlib.md5(content).hexdigest() != part["ETag"].strip('"'):
                raise Failure(400, "InvalidPart", f"part {number}")
            if number != len(listed) and len(content) < LEAST_PART:
                raise Failure(400, "EntityTooSmall", f"part {number}")
            data, sums = data + content, sums + hashlib.md5(content).digest()
        etag = f"{hashlib.md5(sums).hexdigest()}-{len(listed)}"
        self.keep(key, data, etag, json.loads((folder / "about").read_text()))
        self.remove_upload(folder)
        self.answer_xml("CompleteMultipartUploadResult", f"<ETag>&quot;{etag}&quot;</ETag>")


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
