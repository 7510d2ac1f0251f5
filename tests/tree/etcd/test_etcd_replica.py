"""Processes that keep their tree in a real etcd: they agree, apply once, and say what they do not know."""

from base64 import b64encode
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import trio

from batonpass.tree import Aborted, Compacted, Fired, MalformedCommand, NoQuorum, OutcomeUnknown
from batonpass.tree.etcd import Damaged, EtcdConfig, EtcdReplaced, EtcdReplica, RefusedByEtcd
from batonpass.tree.etcd.keys import EtcdKeys
from batonpass.tree.store.pattern import ANY_NAME
from tests.tree.etcd_certificates import certificates, tls_context
from tests.tree.etcd_process import EtcdCluster, needs_etcd, running_etcd
from tests.tree.instances import PROCEDURES, until
from tests.tree.patient import PatientEtcdReplica
from tests.tree.proxy import Proxy, running_proxy


@asynccontextmanager
async def running(*configs: EtcdConfig) -> AsyncIterator[list[PatientEtcdReplica]]:
    """Replicas until the block ends."""
    with trio.fail_after(90):
        async with trio.open_nursery() as nursery:
            replicas = [PatientEtcdReplica(config, PROCEDURES) for config in configs]
            for replica in replicas:
                await nursery.start(replica.serve)
            yield replicas
            nursery.cancel_scope.cancel()


@asynccontextmanager
async def behind_proxy(cluster: EtcdCluster, name: str, **changes: Any) -> AsyncIterator[tuple[EtcdReplica, Proxy]]:
    """A replica whose way to the first member can be disturbed."""
    port = urlsplit(cluster.urls[0]).port
    assert port is not None
    async with (
        running_proxy(port) as proxy,
        running(cluster.config(name, endpoints=(proxy.url,), **changes)) as (replica,),
    ):
        yield replica, proxy


async def put(replica: EtcdReplica, *path: str, data: Any = 1, **more: Any) -> Any:
    return await replica.submit("tree.put", {"path": list(path), "data": data}, **more)


def digests(*replicas: EtcdReplica) -> int:
    """How many different states they are in."""
    return len({replica.digest() for replica in replicas})


@pytest.fixture
async def etcd(tmp_path: Path) -> AsyncIterator[EtcdCluster]:
    """A cluster of one member."""
    async with running_etcd(tmp_path) as cluster:
        yield cluster


# --- agreement ----------------------------------------------------------------------------------------------------


async def test_what_one_process_writes_all_have_the_same_way(etcd: EtcdCluster) -> None:
    async with running(etcd.config("a"), etcd.config("b")) as (one, other):
        await put(one, "x", "y", data={"k": [1, b"2"]})
        await other.read_barrier()
        assert other.store.get(("x", "y")) == {"k": [1, b"2"]}
        assert await other.submit("tree.delete", {"path": ["x", "y"]}) == 2
        await one.read_barrier()
        assert not one.store.exists(("x",))
        assert one.store.revision == other.store.revision == 2
        assert digests(one, other) == 1


async def test_a_process_that_starts_finds_everything(etcd: EtcdCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("batonpass.tree.etcd.following._PAGE_KEYS", 7)
    async with running(etcd.config("a")) as (one,):
        for number in range(20):
            await put(one, "n", str(number), data=number)
        monkeypatch.setattr("batonpass.tree.etcd.client.MAX_ANSWER_BYTES", 2000)
        async with running(etcd.config("b")) as (late,):
            await late.read_barrier()
            assert late.store.count(("n",)) == 1
            assert len(late.store.children(("n",))) == 20
            assert digests(one, late) == 1


async def test_processes_that_race_apply_every_command_once(etcd: EtcdCluster) -> None:
    async with running(*(etcd.config(name) for name in "abc")) as replicas:
        answers: list[int] = []

        async def count(replica: EtcdReplica) -> None:
            answers.append(await replica.submit("count_once", "same"))

        async with trio.open_nursery() as nursery:
            for number in range(150):
                nursery.start_soon(count, replicas[number % 3])
        assert sorted(answers) == list(range(1, 151))
        for replica in replicas:
            await replica.read_barrier()
        assert digests(*replicas) == 1


async def test_a_command_submitted_again_elsewhere_is_applied_once(etcd: EtcdCluster) -> None:
    async with running(etcd.config("a"), etcd.config("b")) as (one, other):
        assert await one.submit("count_once", "x", command_id=("browser 7", 1)) == 1
        assert await other.submit("count_once", "x", command_id=("browser 7", 1)) == 1
        assert await other.submit("count_once", "x", command_id=("browser 7", 2)) == 2
    async with running(etcd.config("c")) as (later,):
        assert await later.submit("count_once", "x", command_id=("browser 7", 1)) == 1


async def test_instances_share_an_etcd_without_meeting(etcd: EtcdCluster) -> None:
    async with running(
        etcd.config("a"), etcd.config("b", instance="alpha2"), etcd.config("c", kind="simserver")
    ) as all_of:
        for number, replica in enumerate(all_of):
            await put(replica, "x", data=number)
        for number, replica in enumerate(all_of):
            await replica.read_barrier()
            assert replica.store.get(("x",)) == number
            assert replica.store.revision == 1


async def test_a_big_subtree_that_goes_away_reaches_everybody_in_fragments(tmp_path: Path) -> None:
    limit = 65_536
    async with (
        running_etcd(tmp_path, 1, f"--max-request-bytes={limit}") as etcd,
        running(etcd.config("a", max_request_bytes=limit), etcd.config("b", max_request_bytes=limit)) as (one, other),
    ):
        # More than the 64 + 512 KiB that this etcd puts into one message, in keys alone.
        long = ("big" * 80, "name" * 60, "of" * 120)
        async with trio.open_nursery() as nursery:
            for number in range(900):
                nursery.start_soon(partial(put, one, *long, f"{number}", timeout_s=60))
        await one.submit("tree.delete", {"path": [long[0]]})
        await other.read_barrier(timeout_s=60)
        assert other.store.children(()) == ()
        assert digests(one, other) == 1


# --- answers and refusals -----------------------------------------------------------------------------------------


async def test_refusals_reach_the_caller_with_their_code(etcd: EtcdCluster) -> None:
    async with running(etcd.config("a")) as (replica,):
        for procedure, args, code in (
            ("tree.update", {"path": ["missing"], "data": 1}, "node_not_found"),
            ("no such procedure", None, "unknown_procedure"),
            ("tree.get", {"path": ["missing"]}, "node_not_found"),
        ):
            with pytest.raises(Aborted) as refused:
                await replica.submit(procedure, args)
            assert refused.value.code == code
        with pytest.raises(MalformedCommand):
            await put(replica, "big", data=b"x" * 2_000_000)
        assert await replica.submit("count_once", "after all that") == 1


async def test_what_one_transaction_of_etcd_cannot_hold_is_refused(etcd: EtcdCluster) -> None:
    async with running(etcd.config("a", max_request_bytes=200_000)) as (replica,):
        await put(replica, "small")
        with pytest.raises(Aborted) as refused:
            await put(replica, "big", data="x" * 300_000)
        assert refused.value.code == "too_much_for_etcd"
        assert not replica.store.exists(("big",))


async def test_reading_procedures_see_everything_and_write_nothing(etcd: EtcdCluster) -> None:
    async with running(etcd.config("a"), etcd.config("b")) as (one, other):
        await put(one, "x", data=5)
        transactions = other.status.rounds
        assert await other.submit("tree.get", {"path": ["x"]}) == 5
        assert other.status.rounds == transactions


async def test_status_tells_of_etcd(etcd: EtcdCluster) -> None:
    async with running(etcd.config("a")) as (replica,):
        await until(lambda: replica.status.ready)
        await put(replica, "x")
        status = replica.status
        assert (status.name, status.leader, status.is_leader) == ("a", "e0", False)
        assert [(member.name, member.connected) for member in status.members] == [("e0", True)]
        assert status.applied_index == status.commit_index > 0
        assert (status.rounds, status.latency.count) == (1, 1)
        assert replica.refusals == ()


async def test_waiting_for_a_change(etcd: EtcdCluster) -> None:
    async with running(etcd.config("a"), etcd.config("b")) as (one, other):
        await put(one, "x")
        await other.wait_applied(one.applied_index)
        assert other.store.exists(("x",))
        before = other.applied_index
        async with trio.open_nursery() as nursery:
            nursery.start_soon(put, one, "y")
            assert await other.changed(before) > before
        assert other.store.exists(("y",))


async def test_watchers_everywhere_are_told_the_same(etcd: EtcdCluster) -> None:
    async with running(etcd.config("a"), etcd.config("b")) as (one, other):
        await put(one, "x", "0", data=0)
        await other.read_barrier()
        here, there = (replica.watch(("x", ANY_NAME)) for replica in (one, other))
        for number in range(3):
            await put(one, "x", "0", data=number)
            await other.submit("tree.delete", {"path": ["x", "0"]})
        await one.read_barrier()
        await other.read_barrier()
        events = await here.take()
        assert await there.take() == events
        assert [str(event.kind) for event in events] == ["deleted"] + ["created", "deleted"] * 2
        again = one.watch(("x", ANY_NAME), events[2].revision)
        assert await again.take() == events[3:]
        with pytest.raises(Compacted):
            other.watch((), -1)


async def test_what_fires_is_run_by_one_process_and_by_another_when_that_ends(etcd: EtcdCluster) -> None:
    ran: list[tuple[str, int]] = []

    def replica(name: str) -> EtcdReplica:
        async def notify(fired: Fired) -> None:
            ran.append((name, fired.payload_version))

        return EtcdReplica(etcd.config(name), PROCEDURES, triggers={"notify": notify})

    one, other = replica("a"), replica("b")
    with trio.fail_after(90):
        async with trio.open_nursery() as nursery:
            scope = trio.CancelScope()
            await nursery.start(serve_in, scope, one)
            await until(lambda: one.status.is_leader)
            await nursery.start(other.serve)
            await one.submit("tree.put", {"path": ["procedure"], "procedure": "notify"})
            trigger = {"id": "t", "pattern": ["x"], "procedure_path": ["procedure"]}
            await one.submit("tree.register_trigger", trigger)
            await put(other, "x", data=1)
            await until(lambda: one.pending_triggers() == () and bool(ran))
            assert ran == [("a", 1)]
            scope.cancel()
            await put(other, "x", data=2)
            await until(lambda: ran == [("a", 1), ("b", 2)])
            assert other.status.is_leader
            nursery.cancel_scope.cancel()


async def serve_in(scope: trio.CancelScope, replica: EtcdReplica, *, task_status: trio.TaskStatus[None]) -> None:
    with scope:
        await replica.serve(task_status=task_status)


# --- trouble ------------------------------------------------------------------------------------------------------


async def test_without_etcd_nothing_is_submitted_and_nothing_is_confirmed(tmp_path: Path) -> None:
    needs_etcd()
    cluster = EtcdCluster(tmp_path, 1)
    try:
        async with running(cluster.config("a")) as (replica,):
            with pytest.raises(NoQuorum):
                await replica.submit("count_once", "x", timeout_s=0.3)
            with pytest.raises(NoQuorum):
                await replica.read_barrier(timeout_s=0.3)
            assert not replica.status.ready
            cluster.start(cluster.members[0])
            assert await replica.submit("count_once", "x", timeout_s=60) == 1
    finally:
        cluster.members[0].kill()


async def test_a_command_whose_answer_is_lost_has_an_unknown_outcome_and_applies_once(etcd: EtcdCluster) -> None:
    async with behind_proxy(etcd, "a") as (replica, proxy):
        await replica.submit("count_once", "before")
        proxy.hold_answers()
        with pytest.raises(OutcomeUnknown) as unknown:
            await replica.submit("count_once", "x", timeout_s=1.0)
        proxy.forget_answers()
        assert await replica.submit("count_once", "x", command_id=unknown.value.command_id) == 1
        assert await replica.submit("count_once", "x") == 2


async def test_a_lost_answer_is_found_while_the_caller_waits(etcd: EtcdCluster) -> None:
    async with behind_proxy(etcd, "a") as (replica, proxy), running(etcd.config("b")) as (other,):
        await replica.submit("count_once", "before")
        proxy.hold_answers()
        answers: list[int] = []

        async def count() -> None:
            answers.append(await replica.submit("count_once", "x", timeout_s=60))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(count)
            await until(lambda: other.store.exists(("counted", "x")))
            proxy.forget_answers()
        assert answers == [1]
        assert await replica.submit("count_once", "x") == 2


async def test_a_frozen_etcd_is_waited_for(etcd: EtcdCluster) -> None:
    async with running(etcd.config("a", request_timeout_s=0.3)) as (replica,):
        await until(lambda: replica.status.ready)
        await replica.submit("count_once", "x")
        etcd.members[0].freeze()
        with pytest.raises(OutcomeUnknown) as unknown:
            await replica.submit("count_once", "x", timeout_s=1.0)
        with pytest.raises(NoQuorum):
            await replica.read_barrier(timeout_s=0.3)
        await until(lambda: replica.status.leader is None)
        etcd.members[0].thaw()
        assert await replica.submit("count_once", "x", command_id=unknown.value.command_id) == 2
        await until(lambda: replica.status.ready)


async def test_etcd_may_be_killed_and_come_back(etcd: EtcdCluster) -> None:
    async with running(etcd.config("a"), etcd.config("b")) as (one, other):
        await one.submit("count_once", "x")
        etcd.members[0].kill()
        etcd.start(etcd.members[0])
        assert await one.submit("count_once", "x", timeout_s=60) == 2
        await other.read_barrier(timeout_s=60)
        assert other.store.get(("counted", "x")) == 2
        assert digests(one, other) == 1


async def test_a_process_that_missed_a_compaction_reads_everything_again(etcd: EtcdCluster) -> None:
    async with behind_proxy(etcd, "a") as (cut_off, proxy), running(etcd.config("b")) as (other,):
        await put(other, "x", "before")
        await cut_off.read_barrier()
        replaced_at: list[int] = []
        cut_off.store.on_restore = replaced_at.append
        proxy.cut()
        await put(other, "x", "meanwhile")
        await other.submit("tree.delete", {"path": ["x", "before"]})
        await etcd.post("/v3/kv/compaction", {"revision": str(other.applied_index)})
        proxy.mend()
        await cut_off.read_barrier(timeout_s=60)
        assert cut_off.store.children(("x",)) == ("meanwhile",)
        assert replaced_at == [other.store.revision]
        assert digests(cut_off, other) == 1


async def test_a_watch_that_died_silently_is_begun_again(etcd: EtcdCluster) -> None:
    async with running(etcd.config("b")) as (other,), behind_proxy(etcd, "a") as (replica, proxy):
        await put(other, "x")
        await replica.read_barrier()
        proxy.hold_answers()
        await put(other, "y")
        # New connections work; the one of the watch stays open and says nothing.
        proxy.serve_new_connections()
        await replica.read_barrier(timeout_s=60)
        assert replica.store.exists(("y",))


async def test_the_leader_of_three_may_be_killed_under_load(tmp_path: Path) -> None:
    async with running_etcd(tmp_path, 3) as cluster, running(cluster.config("a"), cluster.config("b")) as replicas:
        answers: list[int] = []

        async def count(replica: EtcdReplica, number: int) -> None:
            for _ in range(20):
                answers.append(await replica.submit("count_once", str(number), timeout_s=60))

        async with trio.open_nursery() as nursery:
            for number in range(8):
                nursery.start_soon(count, replicas[number % 2], number)
            await until(lambda: len(answers) > 30)
            (await cluster.leader()).kill()
        assert sorted(answers) == sorted(list(range(1, 21)) * 8)
        for replica in replicas:
            await replica.read_barrier(timeout_s=60)
        assert digests(*replicas) == 1


# --- what stops a process -----------------------------------------------------------------------------------------


async def how_it_stops(config: EtcdConfig, cause: Callable[[EtcdReplica], Awaitable[object]]) -> Exception:
    """What `serve` raises after this was done."""
    replica = EtcdReplica(config, PROCEDURES)
    stopped: list[Exception] = []

    async def serve(*, task_status: trio.TaskStatus[None]) -> None:
        try:
            await replica.serve(task_status=task_status)
        except Exception as error:
            stopped.append(error)

    with trio.fail_after(90):
        async with trio.open_nursery() as nursery:
            await nursery.start(serve)
            await cause(replica)
    with pytest.raises(NoQuorum, match="not running"):
        await put(replica, "after")
    return stopped[0]


async def nothing(_replica: EtcdReplica) -> None:
    """Wait for what is wrong already."""


async def test_somebody_who_writes_into_the_prefix_is_noticed(etcd: EtcdCluster) -> None:
    key = EtcdKeys("/batonpass", "homeserver", "alpha").node(("x",))

    async def meddle(replica: EtcdReplica) -> None:
        await put(replica, "x")
        await etcd.post("/v3/kv/put", {"key": b64encode(key).decode(), "value": b64encode(b"mine").decode()})

    stopped = await how_it_stops(etcd.config("a"), meddle)
    assert isinstance(stopped, Damaged)
    assert "somebody else writes there" in str(stopped)
    assert isinstance(await how_it_stops(etcd.config("b"), nothing), Damaged)


async def test_a_deleted_guard_is_noticed(etcd: EtcdCluster) -> None:
    key = EtcdKeys("/batonpass", "homeserver", "alpha").guard

    async def meddle(replica: EtcdReplica) -> None:
        await put(replica, "x")
        await etcd.post("/v3/kv/deleterange", {"key": b64encode(key).decode()})

    assert isinstance(await how_it_stops(etcd.config("a"), meddle), Damaged | EtcdReplaced)
    stopped = await how_it_stops(etcd.config("b"), nothing)
    assert isinstance(stopped, Damaged)
    assert "no guard" in str(stopped)


async def test_another_cluster_at_the_same_address_is_noticed(etcd: EtcdCluster, tmp_path: Path) -> None:
    (tmp_path / "second").mkdir()
    ports = [urlsplit(etcd.urls[0]).port or 0]
    async with running_etcd(tmp_path / "second") as second, running_proxy(ports[0]) as proxy:

        async def swap(replica: EtcdReplica) -> None:
            await put(replica, "x")
            proxy.target_port = urlsplit(second.urls[0]).port or 0
            proxy.forget_answers()

        stopped = await how_it_stops(etcd.config("a", endpoints=(proxy.url,)), swap)
    assert isinstance(stopped, EtcdReplaced)


async def test_an_etcd_without_its_gateway_is_refused(tmp_path: Path) -> None:
    async with running_etcd(tmp_path, 1, "--enable-grpc-gateway=false") as bare:
        stopped = await how_it_stops(bare.config("a"), nothing)
    assert isinstance(stopped, RefusedByEtcd)
    assert "gRPC gateway" in str(stopped)


# --- who may ------------------------------------------------------------------------------------------------------


KEEPER = {"user": "homeserver", "password": "h"}


async def enable_authentication(etcd: EtcdCluster) -> None:
    """A root, and a user who may only use the prefix of batonpass."""
    prefix = [b64encode(key).decode() for key in (b"/batonpass/", b"/batonpass0")]
    for path, body in (
        ("user/add", {"name": "root", "password": "r"}),
        ("user/grant", {"user": "root", "role": "root"}),
        ("role/add", {"name": "keeper"}),
        ("role/grant", {"name": "keeper", "perm": {"permType": "READWRITE", "key": prefix[0], "range_end": prefix[1]}}),
        ("user/add", {"name": KEEPER["user"], "password": KEEPER["password"]}),
        ("user/grant", {"user": "homeserver", "role": "keeper"}),
        ("user/add", {"name": "nobody", "password": "n"}),
        ("auth/enable", {}),
    ):
        await etcd.post(f"/v3/{path}" if path == "auth/enable" else f"/v3/auth/{path}", body)


async def taken_away_and_given_back(etcd: EtcdCluster, replica: EtcdReplica) -> None:
    """Who loses a role while the process runs is told so at once, and goes on when he has it again."""
    token = (await etcd.post("/v3/auth/authenticate", {"name": "root", "password": "r"}))["token"]
    await etcd.post("/v3/auth/user/revoke", {"name": "homeserver", "role": "keeper"}, token=token)
    with pytest.raises(NoQuorum, match=r"refused by etcd: .*permission denied"):
        await put(replica, "z", timeout_s=3600)
    with pytest.raises(NoQuorum, match=r"refused by etcd: .*permission denied"):
        await replica.read_barrier(timeout_s=3600)
    assert "permission denied" in replica.status.cannot_write
    await etcd.post("/v3/auth/user/grant", {"user": "homeserver", "role": "keeper"}, token=token)
    await put(replica, "z", timeout_s=60)
    await replica.read_barrier(timeout_s=60)
    assert replica.status.cannot_write == ""


async def test_a_user_with_a_password_may_and_others_may_not(etcd: EtcdCluster) -> None:
    await enable_authentication(etcd)
    async with running(etcd.config("a", **KEEPER)) as (replica,):
        await put(replica, "x")
        # Tokens are kept in etcd's memory: after a restart, another one is needed.
        etcd.members[0].kill()
        etcd.start(etcd.members[0])
        await put(replica, "y", timeout_s=60)
        await replica.read_barrier()
        await taken_away_and_given_back(etcd, replica)
    for credentials in ({}, KEEPER | {"password": "wrong"}, {"user": "nobody", "password": "n"}):
        assert isinstance(await how_it_stops(etcd.config("b", **credentials), nothing), RefusedByEtcd)


async def test_tls_with_certificates_on_both_sides(tmp_path: Path) -> None:
    files = certificates(tmp_path)
    async with running_etcd(
        tmp_path,
        1,
        f"--cert-file={files['server.pem']}",
        f"--key-file={files['server.key']}",
        f"--trusted-ca-file={files['ca.pem']}",
        "--client-cert-auth",
        tls=tls_context(files),
    ) as etcd:
        mine = {"certificate_file": files["client.pem"], "key_file": files["client.key"]}
        async with running(etcd.config("a", ca_file=files["ca.pem"], **mine)) as (replica,):
            await put(replica, "x")
            await replica.read_barrier()
        async with running(etcd.config("b", ca_file=files["ca.pem"])) as (stranger,):
            with pytest.raises(NoQuorum):
                await put(stranger, "y", timeout_s=0.5)
        async with running(etcd.config("c", ca_file=files["other.pem"], **mine)) as (distrustful,):
            with pytest.raises(NoQuorum):
                await put(distrustful, "y", timeout_s=0.5)


@pytest.mark.parametrize(
    "changes",
    [
        {"endpoints": ()},
        {"endpoints": ("127.0.0.1:2379",)},
        {"user": "u"},
        {"key_file": Path("k")},
        {"max_operations": 7},
        {"max_request_bytes": 1000},
    ],
    ids=str,
)
def test_a_configuration_that_cannot_work_is_refused(changes: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="etcd"):
        EtcdCluster(tmp_path, 1).config("a", **changes)


def test_passwords_are_not_shown(tmp_path: Path) -> None:
    assert "secret" not in repr(EtcdCluster(tmp_path, 1).config("a", **KEEPER | {"password": "secret"}))
