"""A page that says where it runs. Only the standard library."""

import html
import os
import platform
import signal
import socket
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>Hello from a ply box</title>
<h1>Hello from a ply box</h1>
<p>Python {version} serves this page as process {pid} on {host}.</p>
</html>
"""


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path != "/":
            self.send_error(404)
            return
        facts = {
            "version": platform.python_version(),
            "pid": str(os.getpid()),
            "host": html.escape(socket.gethostname()),
        }
        body = PAGE.format(**facts).encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def main():
    port = int(os.environ.get("PORT", "8000"))
    server = ThreadingHTTPServer(("", port), Handler)

    def stop(number, frame):
        # shutdown() waits for the loop below, so it can't be called from within it.
        threading.Thread(target=server.shutdown).start()

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    print(f"listening on port {port}")
    server.serve_forever()
    server.server_close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
