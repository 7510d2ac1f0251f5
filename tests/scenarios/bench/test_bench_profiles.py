"""Where the time goes: from the output of profilers to seconds per layer and function."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batonpass.scenarios.bench.tree.profiles import WAITING, WAITING_FOR_DISK, from_collapsed, from_cprofile, layer_of
from batonpass.scenarios.bench.tree.profiling import MemberProfile


@pytest.mark.parametrize(
    ("file", "layer"),
    [
        ("/here/tree/disk/journal.py", "journal: encoding and writing"),
        ("/here/tree/store/store.py", "applying: commands and store"),
        ("/venv/site-packages/pysyncobj/syncobj.py", "raft: PySyncObj"),
        ("/venv/site-packages/trio/_core/_run.py", "trio: scheduling and sockets"),
        ("/usr/lib/python3.11/ssl.py", "other"),
    ],
)
def test_a_file_belongs_to_a_layer(file: str, layer: str) -> None:
    assert layer_of(file) == layer


def test_collapsed_stacks_count_for_the_innermost_frame() -> None:
    text = (
        "run (trio/_core/_run.py);_step (/here/tree/member/replica.py);sync (/here/tree/disk/journal.py) 30\n"
        "run (trio/_core/_run.py);_step (/here/tree/member/replica.py) 10\n"
        "run (trio/_core/_run.py);EpollIOManager.get_events (trio/_core/_io_epoll.py) 5\n"
    )
    profile = from_collapsed(text, 0.01)
    assert profile.by_layer == pytest.approx(
        {"journal: encoding and writing": 0.3, "replica: the driver": 0.1, WAITING: 0.05}
    )
    assert [function for function, _ in profile.top(1)] == ["sync (tree/disk/journal.py)"]
    assert profile.layers()[0][0].startswith("journal")
    assert profile.active_s == pytest.approx(0.4)
    assert WAITING in dict(profile.layers())


@given(st.dictionaries(st.sampled_from(["a", "b <x>", "c.d"]), st.integers(1, 10_000), min_size=1))
def test_no_sample_is_lost(counts: dict[str, int]) -> None:
    text = "".join(f"main (x.py:1);{name} (tree/store/store.py:7) {count}\n" for name, count in counts.items())
    profile = from_collapsed(text, 1.0)
    assert profile.active_s == sum(counts.values()) == sum(seconds for _, seconds in profile.top(10))


def test_a_sample_without_a_python_frame_counts_for_no_layer_of_ours() -> None:
    """py-spy writes such lines when it looks at a thread that just begins."""
    profile = from_collapsed(" 1\nput (tree/store/store.py) 3\n", 1.0)
    assert profile.by_layer == {"other": 1.0, "applying: commands and store": 3.0}
    assert profile.active_s == 4.0


@pytest.mark.parametrize("text", ["no count at all", "frame 5", "f (x.py) five", " x", ";f 1"])
def test_what_is_no_collapsed_stack_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a collapsed stack"):
        from_collapsed(text, 0.01)


def test_a_built_in_function_counts_for_the_layers_of_its_callers() -> None:
    sync, dumps = ("/here/tree/disk/journal.py", 5, "sync"), ("/here/tree/net/frames.py", 9, "encode")
    stats = {
        sync: (1, 1, 0.5, 2.0, {}),
        dumps: (1, 1, 0.25, 0.5, {}),
        ("~", 0, "<built-in method len>"): (2, 2, 0.75, 0.75, {sync: (1, 1, 0.5, 0.5), dumps: (1, 1, 0.25, 0.25)}),
        ("~", 0, "<method 'poll' of 'select.epoll' objects>"): (1, 1, 3.0, 3.0, {sync: (1, 1, 3.0, 3.0)}),
        ("~", 0, "<built-in method posix.fdatasync>"): (1, 1, 2.0, 2.0, {sync: (1, 1, 2.0, 2.0)}),
    }
    profile = from_cprofile(stats)
    assert profile.by_layer == {
        "journal: encoding and writing": 1.0,
        "messages: CBOR and checks": 0.5,
        WAITING: 3.0,
        WAITING_FOR_DISK: 2.0,
    }
    assert profile.active_s == 1.5
    assert [name for name, _ in profile.top(1)] == ["<built-in method len>"]
    assert profile.by_function["<built-in method len>"] == 0.75


def test_the_processor_time_of_a_member_is_shared_out_by_its_profile() -> None:
    profile = from_collapsed(
        "run (x.py);put (tree/store/store.py) 30\nrun (x.py);sync (tree/disk/journal.py) 10\n", 0.001
    )
    member = MemberProfile("leader", profile, commands=100, processor_s=0.008)
    assert member.cost_us(0.030) == pytest.approx(60.0)
    assert member.cost_us(0.040) == pytest.approx(80.0)
