"""A stream in a file: what was recorded is played again, from any tick, and files of others are read within bounds."""

import io
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batonpass.simserver.sync.lockstep import recording
from batonpass.simserver.sync.lockstep.recording import Recorder, RecordingRefused, read_recording_untrusted
from batonpass.simserver.sync.lockstep.replay import Replay, ReplayDiffers
from tests.simserver.sync.lockstep.bouncers import Bouncers
from tests.simserver.sync.lockstep.games import BOUNCERS_HASHES, SCRIPT, Yard

TICKS = 120


def recorded(hashes: dict[int, str] | None = None) -> io.BytesIO:
    """The beginning of the vectors' script, told in batches that overlap."""
    file = io.BytesIO()
    recorder = Recorder(file, "game", "aa")
    for tick in (1, 2, 2, 30, 29, TICKS):
        recorder.known(tick, [event for event in SCRIPT if event.tick <= tick])
    for tick, hashed in (hashes or {}).items():
        recorder.computed(tick, hashed)
    file.seek(0)
    return file


def test_what_was_recorded_is_read_again() -> None:
    found = read_recording_untrusted(recorded({100: BOUNCERS_HASHES[100]}))
    assert (found.stream, found.incarnation, found.ticks, found.hashes) == (
        "game",
        "aa",
        TICKS,
        {100: BOUNCERS_HASHES[100]},
    )
    assert list(found.events) == [event for event in SCRIPT if event.tick <= TICKS]


@settings(max_examples=10)
@given(st.lists(st.integers(0, TICKS), max_size=4))
def test_a_replay_goes_to_any_tick_with_the_same_hash(ticks: list[int]) -> None:
    replay = Replay(Bouncers(), read_recording_untrusted(recorded()), snapshot_every=25)
    for tick in ticks:
        replay.seek(tick)
        assert (replay.driver.tick, replay.driver.state_hash()) == (tick, BOUNCERS_HASHES[tick])


def test_a_replay_seeks_by_snapshots_and_computes_only_what_is_between() -> None:
    yard = Yard()
    replay = Replay(yard, read_recording_untrusted(recorded()), snapshot_every=50)
    replay.seek(TICKS)
    yard.said.clear()
    replay.seek(103)
    assert [said for said in yard.said if said.startswith("on_tick")] == ["on_tick 100", "on_tick 101", "on_tick 102"]


def test_a_replay_that_computes_another_hash_than_was_recorded_says_at_which_tick() -> None:
    replay = Replay(Bouncers(), read_recording_untrusted(recorded({7: BOUNCERS_HASHES[7], 9: "00"})))
    with pytest.raises(ReplayDiffers, match=r"tick 9: .* recorded"):
        replay.seek(20)


def test_a_replay_ends_where_the_recording_does() -> None:
    replay = Replay(Bouncers(), read_recording_untrusted(recorded()))
    replay.seek(TICKS)
    with pytest.raises(EOFError, match="ends at tick 120"):
        replay.step()
    with pytest.raises(ValueError, match="ticks 0 to 120, not 121"):
        replay.seek(121)


def test_a_last_line_that_was_cut_off_is_left_out() -> None:
    data = recorded().getvalue()
    assert read_recording_untrusted(io.BytesIO(data[:-10])).ticks == 30


HEAD = json.dumps({"Recording": 1, "Stream": "a", "Incarnation": "b"})


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ([], "line 1 is no header"),
        (["[]"], "line 1 is no header"),
        (['{"Recording": 2, "Stream": "a"}'], "version 2, and this program reads 1"),
        ([HEAD, "{"], "line 2 is no JSON"),
        ([HEAD, "[" * 5000], "line 2 is no JSON"),
        ([HEAD, '{"T": 3, "Events": []}', '{"T": 3, "Events": []}'], "line 3: its ticks are not in order"),
        ([HEAD, '{"T": 3, "Events": [[4, "a", "1", ""]]}'], "line 2: its ticks"),
        ([HEAD, '{"T": 3, "Events": [[0, "a", "1", ""]]}'], "line 2: its ticks"),
        ([HEAD, '{"T": 1000000000000, "Events": []}'], "line 2: its ticks"),
        ([HEAD, '{"T": 3, "Events": [[4, "a", "1"]]}'], "line 2 is no part of a recording"),
        ([HEAD, '{"T": 3, "Events": []}', "7"], "line 3 is no part of a recording"),
    ],
)
def test_a_file_that_is_no_recording_is_refused_by_its_line(lines: list[str], said: str) -> None:
    with pytest.raises(RecordingRefused, match=said):
        read_recording_untrusted(io.BytesIO("".join(f"{line}\n" for line in lines).encode()))


def test_lines_and_files_are_bounded(monkeypatch: Any) -> None:
    monkeypatch.setattr(recording, "MAX_LINE_BYTES", 100)
    with pytest.raises(RecordingRefused, match="a line has at most 100 bytes"):
        read_recording_untrusted(recorded())
    monkeypatch.setattr(recording, "MAX_LINE_BYTES", 10_000)
    monkeypatch.setattr(recording, "MAX_RECORDING_BYTES", 200)
    with pytest.raises(RecordingRefused, match="and a recording 200"):
        read_recording_untrusted(recorded())


@pytest.mark.parametrize("every", [0, -1])
def test_snapshots_are_a_tick_apart_at_least(every: int) -> None:
    with pytest.raises(ValueError, match="1 tick apart or more"):
        Replay(Bouncers(), read_recording_untrusted(recorded()), snapshot_every=every)


def test_a_tick_that_does_not_follow_the_last_one_begins_another_recording() -> None:
    game, file = Bouncers(), io.BytesIO()
    recorder = Recorder(file, "game", "aa")
    for tick in (1, 2):
        game.step([event for event in SCRIPT if event.tick == tick])
        recorder.add(list(game.records())[-1])
    for gone in (list(game.records())[-1], list(game.records())[-1]._replace(tick=4)):
        with pytest.raises(ValueError, match="begin another recording"):
            recorder.add(gone)
    file.seek(0)
    assert read_recording_untrusted(file).hashes == {tick: BOUNCERS_HASHES[tick] for tick in (1, 2)}
