"""A server of the earlier release, as far as it was recorded: it gives its answers to GETs, one after the other.

    python -m tests.earlier_release.recorded_server alpha.h1

It says its port on stdout. Query parameters are not looked at, nor tokens.
"""

import json
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any, Final
from urllib.parse import urlsplit

from tests.earlier_release.vectors import recorded

OK: Final = 200


def main() -> None:
    at = sys.argv[1]
    answers: dict[str, dict[str, Any]] = {}
    for one in sorted(recorded("rest")["answers"], key=lambda one: one["status"] != OK):
        if one["at"] == at:
            answers.setdefault(one["path"], one)

    class Recorded(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = answers.get(urlsplit(self.path).path)
            given = found or {
                "status": 404,
                "type": "application/json",
                "body": {"code": "not_recorded", "message": ""},
            }
            is_text = isinstance(given["body"], str) and not given["type"].startswith("application/json")
            payload = (given["body"] if is_text else json.dumps(given["body"])).encode()
            self.send_response(given["status"])
            self.send_header("Content-Type", given["type"])
            self.send_header("Content-Length", str(len(payload)))
            self.end_headers()
            self.wfile.write(payload)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Recorded)
    sys.stdout.write(f"{server.server_port}\n")
    sys.stdout.flush()
    server.serve_forever()


if __name__ == "__main__":
    main()
