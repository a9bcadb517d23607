# SPDX-License-Identifier: BSD-3-Clause
"""A web server on 127.0.0.1 for the tests of downloads. It serves DIRECTORY with the faults that the path requests.

    http_server.py DIRECTORY     prints its port, serves until its standard input is closed

    /range/FILE      with ranges
    /plain/FILE      ranges are refused
    /cut/N/FILE      as range, but the connection is cut after N bytes of the answer
    /linked/SUM/...  redirects to the rest of the path and gives the SHA-256 of the file, as Hugging Face does

DIRECTORY/requests has one line per request of a file: its path and the requested range.
"""
import http.server
import pathlib
import sys
import threading

root = pathlib.Path(sys.argv[1])


class Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *arguments):
        pass

    def do_HEAD(self):
        kind, *middle = self.path.strip("/").split("/")
        self.send_response(302 if kind == "linked" else 200)
        if kind == "linked":
            self.send_header("Location", "/" + "/".join(middle[1:]))
            self.send_header("X-Linked-ETag", f'"{middle[0]}"')
        self.send_header("Content-Length", "0")
        self.end_headers()

    def do_GET(self):
        kind, *middle, name = self.path.strip("/").split("/")
        if kind == "linked":
            self.do_HEAD()
            return
        wanted = self.headers.get("Range")
        with open(root / "requests", "a") as file:
            file.write(f"{self.path} {wanted or '-'}\n")
        if not (root / name).is_file():
            self.send_error(404)
            return
        content = (root / name).read_bytes()
        begin = int(wanted.removeprefix("bytes=").split("-")[0]) if wanted else 0
        if begin and (begin >= len(content) or kind == "plain"):
            self.send_error(416)
            return
        self.send_response(206 if begin else 200)
        if begin:
            self.send_header("Content-Range", f"bytes {begin}-{len(content) - 1}/{len(content)}")
        self.send_header("Content-Length", str(len(content) - begin))
        self.end_headers()
        self.wfile.write(content[begin:][: int(middle[0]) if kind == "cut" else None])
        self.close_connection = True


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
threading.Thread(target=server.serve_forever, daemon=True).start()
print(server.server_port, flush=True)
sys.stdin.read()
