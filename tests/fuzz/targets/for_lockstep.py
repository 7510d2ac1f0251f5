"""What reaches a client of an event stream: answers of its server, dumps of other clients, and files."""

import base64
import hashlib
import io
import json
from collections.abc import Callable
from typing import Any

from batonpass.simserver.sync.lockstep import follower
from batonpass.simserver.sync.lockstep.desync import DumpRefused, dump_of, explain
from batonpass.simserver.sync.lockstep.driver import SimDriver, SimEvent
from batonpass.simserver.sync.lockstep.follower import AnswerRefused
from batonpass.simserver.sync.lockstep.recording import RecordingRefused, read_recording_untrusted
from tests.fuzz.target import Target


def _good_dump() -> str:
    driver = SimDriver(trace=True)
    driver.step([SimEvent(1, "_a", "_", "seed")])
    return dump_of(driver, 1) or ""


def _of_json(read: Callable[[Any], object]) -> Callable[[bytes], object]:
    def call(data: bytes) -> object:
        try:
            answer = json.loads(data)
        except (ValueError, RecursionError):
            return None
        return read(answer)

    return call


def _reply_seeds() -> list[bytes]:
    event = {"T": 2, "Type": "move", "Origin": "1", "Body": "x"}
    reply = {"T": 3, "Events": [event], "States": [], "ProxyId": "1", "Incarnation": "ab", "Acked": 1, "Oldest": 0}
    more = {"Reset": True, "Snapshot": 2, "Desync": {"T": 2, "Hashes": {"aa": ["1"], "bb": ["2"]}}}
    return [json.dumps(reply).encode(), json.dumps(reply | more).encode()]


def _snapshot_seeds() -> list[bytes]:
    state = base64.b64encode(b"state").decode()
    fields = {"T": 3, "Incarnation": "ab", "State": state, "Hash": hashlib.sha256(b"state").hexdigest()}
    return [json.dumps(fields | {"Votes": [{"ProxyId": "1"}, {"ProxyId": "2"}]}).encode()]


TARGETS = [
    Target(
        "lockstep-reply",
        _of_json(follower._SyncReply.read_untrusted),
        ["batonpass.simserver.sync.lockstep.follower:_SyncReply.read_untrusted"],
        _reply_seeds,
        (AnswerRefused,),
        plain="json",
    ),
    Target(
        "lockstep-snapshot",
        _of_json(follower._read_snapshot_untrusted),
        ["batonpass.simserver.sync.lockstep.follower:_read_snapshot_untrusted"],
        _snapshot_seeds,
        (AnswerRefused,),
        plain="json",
    ),
    Target(
        "lockstep-dump",
        lambda data: explain(data.decode(errors="replace"), _good_dump()),
        ["batonpass.simserver.sync.lockstep.desync:_read_untrusted"],
        lambda: [_good_dump().encode()],
        (DumpRefused, ValueError),
        plain="json",
    ),
    Target(
        "lockstep-recording",
        lambda data: read_recording_untrusted(io.BytesIO(data)),
        ["batonpass.simserver.sync.lockstep.recording:read_recording_untrusted"],
        lambda: [
            b'{"Recording":1,"Stream":"game","Incarnation":"ab"}\n{"T":2,"Events":[[1,"_a","_","s"]]}\n'
            b'{"Tick":1,"Hash":"aa"}\n'
        ],
        (RecordingRefused,),
    ),
]
