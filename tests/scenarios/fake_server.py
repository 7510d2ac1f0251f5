"""A stand-in for any server of a cluster: it answers `/healthz` on its REST address, and misbehaves on request.

    python fake_server.py CONFIG.toml [BEHAVIOUR]

Behaviours: `well` (default), `crash` (say something, exit 7), `unready` (503 for ever), `stubborn` (ignores SIGTERM),
`sulky` (exit status 4 when stopped), `impostor` (answers under another name), `let_go` (as a homeserver that is no
member any more).
"""

import json
import signal
import sys
import tomllib
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import FrameType

from batonpass.homeserver.server.exit_status import REMOVED
from batonpass.scenarios.cluster.subreaper import die_with_parent


def _serve(config: dict[str, object], behaviour: str) -> None:
    name = "somebody.else" if behaviour == "impostor" else config["name"]
    ready = behaviour != "unready"
    body = {"status": "ok", "name": name} if ready else {"code": "not_ready", "message": "no leader yet"}

    class Health(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            payload = json.dumps(body).encode()
            self.send_response(200 if ready else 503)
            self.send_header("Content-Length", str(len(payload)))
            self.end_headers()
            self.wfile.write(payload)
            sys.stderr.write(f"answered {payload.decode()}\n")

        def log_message(self, format: str, *args: object) -> None:
            pass

    rest = config["rest"]
    assert isinstance(rest, dict)
    HTTPServer((rest["host"], rest["port"]), Health).serve_forever()


def _on_terminate(behaviour: str) -> None:
    def leave(number: int, frame: FrameType | None) -> None:
        sys.exit({"sulky": 4}.get(behaviour, 0))

    signal.signal(signal.SIGTERM, signal.SIG_IGN if behaviour == "stubborn" else leave)


def main() -> None:
    _on_terminate(sys.argv[2] if len(sys.argv) > 2 else "well")
    die_with_parent()
    config = tomllib.loads(Path(sys.argv[1]).read_text())
    behaviour = sys.argv[2] if len(sys.argv) > 2 else "well"
    sys.stderr.write(f"{config['name']} starts\n")
    if behaviour == "let_go":
        sys.exit(REMOVED)
    if behaviour == "crash":
        sys.stderr.write("the dog ate my journal\n")
        sys.exit(7)
    _serve(config, behaviour)


if __name__ == "__main__":
    main()
