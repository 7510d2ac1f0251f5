"""FastAPI under uvicorn: GoEventStream's rules, written down plainly; ticks are pushed over WebSockets, too.

A request disconnects the clients that were silent for ten seconds, and finds or makes its client. It appends its events
one tick after what was told last, and is answered with all events after the tick that it knows.
"""

import sys
import time
from typing import Any, Final

import anyio
import uvicorn
from fastapi import FastAPI, Request, WebSocket, WebSocketDisconnect

from batonpass.scenarios.bench.events.workers.stream_load import TICK_S, loaded, served_by
from batonpass.scenarios.bench.loops import arguments, tell_all

__all__ = ["main"]

MODULE: Final = "batonpass.scenarios.bench.events.workers.on_fastapi"
SILENCE_S: Final = 10.0


class _PlainStream:
    def __init__(self) -> None:
        self.began_s = time.monotonic()
        self.last_sent = 0
        self.events: list[dict[str, Any]] = [{"T": 1, "Type": "_a", "Origin": "_", "Body": f"{time.time_ns()}"}]
        self.public_ids: dict[str, str] = {}
        self.heard_s: dict[str, float] = {}

    @property
    def tick(self) -> int:
        return int((time.monotonic() - self.began_s) / TICK_S)

    def request(self, client: str, known: int, events: list[dict[str, Any]]) -> dict[str, Any]:
        now_s = time.monotonic()
        for other, heard_s in list(self.heard_s.items()):
            if now_s - heard_s > SILENCE_S:
                del self.heard_s[other]
                self._append("_d", "_", self.public_ids[other])
        if client not in self.heard_s:
            self.public_ids.setdefault(client, str(len(self.public_ids) + 1))
            self._append("_c", "_", self.public_ids[client])
        self.heard_s[client] = now_s
        for event in events:
            self._append(event["Type"], self.public_ids[client], event["Body"])
        tick = self.last_sent = self.tick
        fresh = [event for event in self.events if known < event["T"] <= tick]
        return {"T": tick, "Events": fresh, "States": [], "ProxyId": self.public_ids[client]}

    def _append(self, type: str, origin: str, body: str) -> None:
        self.events.append({"T": self.last_sent + 1, "Type": type, "Origin": origin, "Body": body})


app = FastAPI()
streams: dict[str, _PlainStream] = {}


def _stream(name: str) -> _PlainStream:
    return streams.setdefault(name, _PlainStream())


@app.post("/{name}/{client}/{known}")
async def poll(name: str, client: str, known: int, request: Request) -> dict[str, Any]:
    """A poll."""
    body = await request.json()
    return _stream(name).request(client, known, body.get("Events", []))


@app.websocket("/{name}/{client}/{known}")
async def push(websocket: WebSocket, name: str, client: str, known: int) -> None:
    """A WebSocket that is told every tick."""
    await websocket.accept()
    stream = _stream(name)
    try:
        body = await websocket.receive_json()
        async with anyio.create_task_group() as tasks:

            async def tell() -> None:
                told = known
                while True:
                    reply = stream.request(client, told, [])
                    told = reply["T"]
                    await websocket.send_json(reply)
                    await anyio.sleep(max(0.0, stream.began_s + (told + 1) * TICK_S - time.monotonic()))

            stream.request(client, known, body.get("Events", []))
            tasks.start_soon(tell)
            try:
                while True:
                    body = await websocket.receive_json()
                    stream.request(client, stream.tick, body.get("Events", []))
            finally:
                tasks.cancel_scope.cancel()
    except WebSocketDisconnect:
        return


def main() -> None:
    """As `side_by_side` asks."""
    if sys.argv[1] == "serve":
        uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[2]), log_level="error", access_log=False)
        return
    work, seconds = arguments("fastapi")
    tell_all(loaded(work, seconds, served_by((sys.executable, "-m", MODULE, "serve"))))


if __name__ == "__main__":
    main()
