# SPDX-License-Identifier: BSD-3-Clause
"""A web server on 127.0.0.1 for the tests of downloads. It serves DIRECTORY with the faults that the path requests.

    http_server.py DIRECTORY     prints its port, serves until its standard input is closed

    /range/FILE      with ranges, an ETag and If-Range
    /plain/FILE      ranges are ignored
    /cut/N/FILE      as range, but the connection is cut after N bytes of the answer
    /torn/N/FILE     as cut, and ranges are ignored
    /busy/N/FILE     503 for the first N requests, then as range
    /linked/SUM/FILE redirects to /range/FILE and gives its SHA-256, as Hugging Face does

DIRECTORY/requests has one line per request: its path and the requested range.
"""
import hashlib
import http.server
import pathlib
import sys
import threading

root = pathlib.Path(sys.argv[1])
busy_answers = {}


class Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *arguments):
        pass

    def note(self):
        with open(root / "requests", "a") as file:
            file.write(f"{self.path} {self.headers.get('Range', '-')}\n")

    def redirect(self, place, sum_of_file):
        self.send_response(302)
        self.send_header("Location", place)
        self.send_header("X-Linked-ETag", f'"{sum_of_file}"')
        self.send_header("Content-Length", "0")
        self.end_headers()

    def first_byte(self, etag, size):
        """Offset of the first byte of the answer; None: behind the end."""
        wanted = self.headers.get("Range")
        if wanted is None or self.headers.get("If-Range", etag) != etag:
            return 0
        begin = int(wanted.removeprefix("bytes=").split("-")[0])
        return begin if begin < size else None

    def answer(self, file, ranges=True, cut=None):
        content = file.read_bytes()
        etag = f'"{hashlib.md5(content).hexdigest()}"'
        begin = self.first_byte(etag, len(content)) if ranges else 0
        if begin is None:
            self.send_error(416)
            return
        self.send_response(206 if begin else 200)
        if begin:
            self.send_header("Content-Range", f"bytes {begin}-{len(content) - 1}/{len(content)}")
        if ranges:
            self.send_header("ETag", etag)
        self.send_header("Content-Length", str(len(content) - begin))
        self.end_headers()
        self.wfile.write(content[begin:] if cut is None else content[begin : begin + cut])
        self.close_connection = True

    def do_GET(self):
        self.note()
        kind, *middle, name = self.path.strip("/").split("/")
        file = root / name
        if kind == "busy" and busy_answers.setdefault(self.path, int(middle[0])) > 0:
            busy_answers[self.path] -= 1
            self.send_error(503)
        elif kind == "linked":
            self.redirect(f"/range/{name}", middle[0])
        elif not file.is_file():
            self.send_error(404)
        elif kind in ("cut", "torn"):
            self.answer(file, ranges=kind == "cut", cut=int(middle[0]))
        else:
            self.answer(file, ranges=kind != "plain")


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
threading.Thread(target=server.serve_forever, daemon=True).start()
print(server.server_port, flush=True)
sys.stdin.read()
