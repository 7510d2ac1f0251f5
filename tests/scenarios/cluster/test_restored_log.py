"""A whole instance whose homeserver comes up with an older log than its simulation servers know, as real processes."""

import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from batonpass.authority.fence import EPOCHS_OF_A_HISTORY, Fence
from batonpass.authority.trust.signed_positions import LogPlace
from batonpass.authority.wire.queries import place_said_untrusted
from batonpass.scenarios.cluster.cluster import ClusterFailed
from batonpass.scenarios.players.rest_client import ApiFailure, RestClient
from tests.scenarios import asked
from tests.scenarios.asked import LIMIT_S, come, health_code
from tests.scenarios.cluster.test_failover import LONG_S, PLAYER, Entity, World, operated, world

pytestmark = asked.limited

HOME = "alpha.h1"
SERVERS = ("alpha.s1", "alpha.s2")
BALL = "alpha.ball-0"
GHOST: dict[str, Any] = {
    "id": "alpha.ball-7",
    "kind": "ball",
    "spawner": PLAYER,
    "server": "alpha.s1",
    "params": {"p": [0, 0, 0], "v": [1, 2, 3]},
}


@asynccontextmanager
async def coming_up(running: World, name: str) -> AsyncIterator[None]:
    """Start a server that will perhaps never say that it is ready."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(running.cluster.restart, name, same_code=True, timeout_s=LIMIT_S))
        yield
        nursery.cancel_scope.cancel()


def is_with(server: str, record: Entity) -> bool:
    return bool(record["authority"] == server)


async def handed_over(running: World, *servers: str) -> dict[str, Entity]:
    """Hand all entities to these servers, one after the other; the records of when the last one simulates them."""
    records = {}
    for server in servers:
        records = await running.hand_over(server)
    return records


async def all_know_the_log(running: World) -> None:
    """Wait until the simulation servers keep a signed word that their home's log has come as far as it is now."""
    revision = (await running.client.call("alpha", "GET", "/v1/tree/leases"))["revision"]
    for name in SERVERS:
        file = running.cluster.directory / name / "state" / "home_log"

        async def known(file: Path = file) -> int:
            return place_said_untrusted(in_home_log(file)[0])[1].revision

        await come(known, lambda known: known >= revision, what=f"the word for revision {revision} in {file}")


async def test_failures_row_42_servers_do_not_follow_a_home_that_was_restored_from_an_older_backup() -> None:
    async with world(simservers=2, lease_term_s=LONG_S) as running:
        cluster = running.cluster
        log, backup = cluster.directory / HOME, cluster.directory / "backup"
        await running.spawn(1, "alpha.s1")
        await cluster.stop(HOME)
        shutil.copytree(log, backup)
        await cluster.restart(HOME, same_code=True)
        await running.push(10)
        await handed_over(running, "alpha.s2", "alpha.s1", "alpha.s2", "alpha.s1")
        fence = (await running.here("alpha.s1", BALL))["epoch"]
        assert fence >= 5
        await all_know_the_log(running)
        await cluster.stop(HOME)
        newest = log.rename(cluster.directory / "newest")
        shutil.copytree(backup, log)
        async with coming_up(running, HOME):
            await says(running, "log_went_back", *SERVERS, HOME)
            await refuses(running, fence)
            # What is on its disk counts as what is in its memory.
            await cluster.kill("alpha.s2")
            async with coming_up(running, "alpha.s2"):
                await says(running, "log_went_back", "alpha.s2")
        await cluster.stop(HOME)
        shutil.rmtree(log)
        newest.rename(log)
        await cluster.restart(HOME, same_code=True)
        await says(running, "ok", *SERVERS)
        records = await running.until(lambda record: record["standing"] == "simulated")
        assert records[BALL]["epoch"] >= fence
        await running.exactly_once()


async def refuses(running: World, fence: int) -> None:
    """What lives on a server stands still under the fence that it had, whatever its home wants."""
    stood = await running.here("alpha.s1", BALL)
    with trio.move_on_after(1.5):
        await running.client.call("alpha", "POST", f"/v1/entities/{BALL}/transfers", {"to": "alpha.s2"})
        await trio.sleep_forever()
    after = await running.here("alpha.s1", BALL)
    assert (after["epoch"], after["tick"]) == (fence, stood["tick"])
    await running.is_not_here("alpha.s2", BALL)
    for name in SERVERS:
        assert (await running.stats(name))["counts"]["log_went_back"] == 1, name
        await logged_once(running, name, "log_went_back:")
    await logged_once(running, HOME, "log_went_back:")


async def logged_once(running: World, name: str, line: str) -> None:
    """Wait until this stands in the log of a server. It must not stand there twice."""
    log = await come(partial(log_of, running, name), lambda text: line in text, what=f"{line} in the log of {name}")
    assert log.count(line) == 1, name


async def log_of(running: World, name: str) -> str:
    return await trio.Path(running.cluster.server(name).log_file).read_text()


def in_home_log(file: Path) -> list[str]:
    """The signed word that a server keeps, and where it heard that the log was."""
    text = file.read_text() if file.exists() else ""
    return [text.partition("\n")[0], text.partition("\n")[2].strip()]


async def office_heard(file: Path, after: int) -> int:
    """Wait until a server has a signed word, and has heard of a later office; the latest of which it has heard."""

    async def latest() -> int:
        signed, places = in_home_log(file)
        offices = [place.office for text in places.split() if (place := LogPlace.read(text)) is not None]
        return max(offices, default=0) if signed else 0

    return await come(latest, lambda office: office > after, what=f"in {file}, an office after {after}")


async def test_failures_row_42_a_server_stands_still_for_what_was_decided_since_its_last_renewal() -> None:
    """The log that is restored is so new that no signed word tells it from the one that was lost."""
    async with world(simservers=2, lease_term_s=LONG_S) as running:
        cluster = running.cluster
        log, backup = cluster.directory / HOME, cluster.directory / "backup"
        await running.spawn(1, "alpha.s1")
        file = cluster.directory / "alpha.s2" / "state" / "home_log"
        office = await office_heard(file, 0)
        await cluster.stop(HOME)
        signed, _ = in_home_log(file)
        shutil.copytree(log, backup)
        await cluster.restart(HOME, same_code=True)
        await handed_over(running, "alpha.s2")
        await office_heard(file, office)
        # Its signed word is of before: as if it had not renewed its lease since. The other one is away.
        for name in (*SERVERS, HOME):
            await cluster.kill(name)
        _, places = in_home_log(file)
        file.write_text(f"{signed}\n{places}\n")
        newest = log.rename(cluster.directory / "newest")
        shutil.copytree(backup, log)
        async with coming_up(running, HOME), coming_up(running, "alpha.s2"):
            await says(running, "log_went_back", "alpha.s2")
            assert await health_code(cluster.server(HOME).rest_url) != "log_went_back", "nothing is proved"
        await cluster.stop("alpha.s2")
        await cluster.stop(HOME)
        shutil.rmtree(log)
        newest.rename(log)
        await cluster.restart(HOME, same_code=True)
        for name in SERVERS:
            await cluster.restart(name, same_code=True)
        records = await running.until(lambda record: record["standing"] == "simulated" and record["epoch"] > 1)
        assert records[BALL]["epoch"] >= 2
        await running.push(10)
        await running.exactly_once()


async def test_failures_row_42_what_only_a_server_of_another_instance_was_told_stops_the_homeserver_too() -> None:
    """Who handed over is dead, and no other server of the instance has heard of what was decided."""
    async with world(instances={"alpha": 1, "beta": 1}, simservers=2, lease_term_s=LONG_S) as running:
        cluster = running.cluster
        log, backup = cluster.directory / HOME, cluster.directory / "backup"
        await running.spawn(1, "alpha.s1")
        file = cluster.directory / "alpha.s2" / "state" / "home_log"
        await office_heard(file, 0)
        await cluster.stop(HOME)
        kept = file.read_text()
        shutil.copytree(log, backup)
        await cluster.restart(HOME, same_code=True)
        await handed_over(running, "beta.s1")
        # Who hands over brings the word of it.
        fence = (await running.here("beta.s1", BALL))["epoch"]
        assert fence >= 2
        for name in ("alpha.s1", "alpha.s2", HOME):
            await cluster.kill(name)
        # As if it had not heard of its home since.
        file.write_text(kept)
        newest = log.rename(cluster.directory / "newest")
        shutil.copytree(backup, log)
        async with coming_up(running, HOME), coming_up(running, "alpha.s2"):
            await says(running, "log_went_back", HOME)
            await says(running, "log_went_back", "alpha.s2")
            assert "beta proves" in await asked.says(cluster.server(HOME).rest_url, "log_went_back")
        there = await running.here("beta.s1", BALL)
        assert there["epoch"] == fence, "it keeps simulating under the fence that it was given"
        await cluster.stop("alpha.s2")
        await cluster.stop(HOME)
        shutil.rmtree(log)
        newest.rename(log)
        for name in (HOME, *SERVERS):
            await cluster.restart(name, same_code=True)
        records = await running.until(partial(is_with, "beta.s1"))
        assert records[BALL]["epoch"] >= fence
        await running.push(10)
        await running.exactly_once()


async def misled(running: World) -> tuple[Path, int]:
    """An older log is used, by which alpha.s1 has the ball; by the newest one, which is there, alpha.s2 has it.

    Where the newest one is, and the fence that alpha.s2 has by it: both logs give 3 for a takeover, unless a machine
    that has much else to do ends a lease more.
    """
    cluster = running.cluster
    log, backup = cluster.directory / HOME, cluster.directory / "backup"
    await running.spawn(1, "alpha.s1")
    # What no other server has a copy of when its server dies is lost.
    await is_not_alone(running, "alpha.s1")
    await running.push(10)
    await running.everything_durable()
    await cluster.stop(HOME)
    shutil.copytree(log, backup)
    await cluster.kill("alpha.s1")
    await cluster.restart(HOME, same_code=True)
    await running.until(partial(is_with, "alpha.s2"))
    await running.push(10)
    await running.everything_durable()
    fence = (await running.here("alpha.s2", BALL))["epoch"]
    # Who could prove that the log went back says nothing for as long as the other one is misled.
    await cluster.pause("alpha.s2")
    await cluster.stop(HOME)
    newest = log.rename(cluster.directory / "newest")
    shutil.copytree(backup, log)
    await cluster.restart(HOME, same_code=True)
    await cluster.restart("alpha.s1", same_code=True)
    return newest, int(fence)


async def test_failures_row_42_who_was_given_an_entity_by_the_older_log_begins_with_what_the_newest_one_gives() -> None:
    """It has the very fences that the newest log would give next, and one of a later stay besides."""
    async with world(instances={"alpha": 1, "beta": 1}, simservers=2) as running:
        cluster = running.cluster
        log = cluster.directory / HOME
        newest, fence = await misled(running)
        await handed_over(running, "beta.s1")
        assert (await running.here("beta.s1", BALL))["epoch"] >= 4
        await handed_over(running, "alpha.s1")
        assert (await running.here("alpha.s1", BALL))["epoch"] >= 5
        cluster.resume("alpha.s2")
        await says(running, "log_went_back", HOME, *SERVERS)
        await cluster.stop(HOME)
        shutil.rmtree(log)
        newest.rename(log)
        async with coming_up(running, HOME):
            # What the older log has said to servers of another instance is held against the newest one.
            await says(running, "log_went_back", HOME)
            await accept_loss(running)
            await says(running, "ok", HOME, *SERVERS)
        assert (await running.here("alpha.s2", BALL))["epoch"] == fence
        records = await handed_over(running, "beta.s1")
        there = await running.here("beta.s1", BALL)
        assert Fence(there["epoch"]).begins_block
        assert records[BALL]["epoch"] == there["epoch"]
        await handed_over(running, "beta.s2", "alpha.s1")
        await running.push(10)
        await running.exactly_once()


async def test_failures_row_42_what_was_handed_on_abroad_by_a_lost_log_goes_on_where_it_is() -> None:
    """The log that is left says that somebody has it who handed it on, and who would never say so."""
    async with world(instances={"alpha": 1, "beta": 1}, simservers=2, lease_term_s=LONG_S) as running:
        cluster = running.cluster
        log, backup = cluster.directory / HOME, cluster.directory / "backup"
        await running.spawn(1, "alpha.s1")
        await handed_over(running, "beta.s1")
        await running.here("beta.s1", BALL)
        await cluster.stop(HOME)
        shutil.copytree(log, backup)
        await cluster.restart(HOME, same_code=True)
        await handed_over(running, "beta.s2")
        await running.push(10)
        await running.everything_durable()
        assert (await running.here("beta.s2", BALL))["epoch"] >= 3
        await cluster.stop(HOME)
        log.rename(cluster.directory / "lost")
        backup.rename(log)
        async with coming_up(running, HOME):
            await says(running, "log_went_back", HOME)
            await accept_loss(running)
            await says(running, "ok", HOME, *SERVERS)
        record = (await running.until(partial(is_with, "beta.s2")))[BALL]
        assert record["standing"] == "simulated"
        assert record["epoch"] > EPOCHS_OF_A_HISTORY
        await running.push(10)
        await running.exactly_once()


async def test_failures_row_42_what_never_left_its_server_goes_on_however_often_its_log_is_lost() -> None:
    """Its fence was raised where it is: when its server was restarted, and by each loss that was accepted."""
    async with world(simservers=2, lease_term_s=LONG_S) as running:
        cluster = running.cluster
        log, backup = cluster.directory / HOME, cluster.directory / "backup"
        await running.spawn(1, "alpha.s1")
        await cluster.stop(HOME)
        shutil.copytree(log, backup)
        await cluster.restart(HOME, same_code=True)
        for epoch in (1, 3):
            await cluster.stop("alpha.s1")
            await cluster.restart("alpha.s1", same_code=True)
            await running.until(
                lambda record, epoch=epoch: is_with("alpha.s1", record) and record["epoch"] > epoch  # type: ignore[misc]
            )
        for times in (1, 2):
            await running.push(10)
            await running.everything_durable()
            before = (await running.record(BALL))["epoch"]
            await all_know_the_log(running)
            await cluster.stop(HOME)
            shutil.rmtree(log)
            shutil.copytree(backup, log)
            async with coming_up(running, HOME):
                await says(running, "log_went_back", HOME)
                await accept_loss(running)
                await says(running, "ok", HOME, *SERVERS)
                raised = max(before, EPOCHS_OF_A_HISTORY)
                await running.until(
                    lambda record, raised=raised: is_with("alpha.s1", record) and record["epoch"] > raised  # type: ignore[misc]
                )
                await running.push(10)
                await running.exactly_once()
                if times == 1:
                    await cluster.stop(HOME)
            if times == 1:
                await cluster.restart(HOME, same_code=True)


HOMES = ("alpha.h1", "alpha.h2", "alpha.h3")


async def accept_loss(running: World) -> None:
    alarm = partial(operated, running, "alpha", "DELETE", "/v1/cluster/log-alarm")
    assert "proves" in (await come(alarm, what="that the loss is accepted"))["why"]


async def each(do: Callable[[str], Awaitable[Any]]) -> None:
    async with trio.open_nursery() as nursery:
        for name in HOMES:
            nursery.start_soon(do, name)


async def swapped(running: World, old: str, new: str, *names: str) -> None:
    """The directories of homeservers that do not run are kept as `old`, and those kept as `new` are put in place."""
    directory = running.cluster.directory
    for name in names:
        (directory / name).rename(directory / f"{name}-{old}")
        shutil.copytree(directory / f"{name}-{new}", directory / name)


async def with_two_histories(running: World) -> None:
    """All homeservers stand still, with an older log in place; the newest one is kept."""
    cluster = running.cluster
    await running.spawn(1, "alpha.s1")
    await each(cluster.stop)
    for name in HOMES:
        shutil.copytree(cluster.directory / name, cluster.directory / f"{name}-backup")
    await each(partial(cluster.restart, same_code=True))
    await handed_over(running, "alpha.s2", "alpha.s1", "alpha.s2")
    await all_know_the_log(running)
    await each(cluster.stop)
    await swapped(running, "newest", "backup", *HOMES)


async def says(running: World, code: str, *names: str) -> None:
    """Wait until each of these says this of its health: `ok`, or the code of what is wrong."""
    for name in names:
        await asked.says(running.cluster.server(name).rest_url, code)


async def test_failures_row_42_no_member_goes_on_by_a_log_that_one_of_them_was_shown_to_be_older() -> None:
    async with world(instances={"alpha": 3}, simservers=2, lease_term_s=LONG_S) as running:
        cluster = running.cluster
        await with_two_histories(running)
        async with trio.open_nursery() as nursery:
            for name in HOMES:
                nursery.start_soon(partial(cluster.restart, name, same_code=True, timeout_s=LIMIT_S))
            await says(running, "log_went_back", *HOMES, *SERVERS)
            for name in HOMES:
                with pytest.raises(ApiFailure, match="log_went_back"):
                    await refused_by(running, name)
            nursery.cancel_scope.cancel()
        # It stands in that log, so that whoever starts with it knows.
        await each(cluster.kill)
        async with trio.open_nursery() as nursery:
            for name in HOMES:
                nursery.start_soon(partial(cluster.restart, name, same_code=True, timeout_s=LIMIT_S))
            await says(running, "log_went_back", *HOMES)
            nursery.cancel_scope.cancel()
        for name in HOMES:
            assert "is over" not in await log_of(running, name), "nobody's lease is ended"
        await each(cluster.stop)
        await swapped(running, "restored", "newest", *HOMES)
        await each(partial(cluster.restart, same_code=True))
        await says(running, "ok", *HOMES, *SERVERS)
        records = await running.until(partial(is_with, "alpha.s2"))
        assert records[BALL]["epoch"] >= 4
        await running.push(10)
        await running.exactly_once()


async def ends_or_is_overwritten(running: World, why: str) -> None:
    """A member has ended for that reason, or Raft has replaced what a member had by the log of the leader.

    Raft replaces it where terms tell the two histories apart, which needs one election more in one of them.
    """

    async def has() -> tuple[bool, list[Any]]:
        ended = any([why in await log_of(running, name) for name in HOMES])
        return ended, [] if ended else [await offices_of(running, name) for name in HOMES]

    def is_over(seen: tuple[bool, list[Any]]) -> bool:
        ended, shown = seen
        return ended or bool(shown[0] and all(one == shown[0] for one in shown))

    await come(has, is_over, what=f"{why}, or one history")


async def offices_of(running: World, name: str) -> Any:
    """The marks of the offices by a homeserver's copy of the log: two histories have different ones."""
    url = f"{running.cluster.server(name).rest_url}/v1/cluster/offices"
    return (await running.client.get(url, nonce="0" * 22)).get("offices", {})


async def have_offices(running: World, number: int) -> None:
    """All homeservers' copies of the log have this office."""

    async def offices() -> dict[str, Any]:
        return {name: await offices_of(running, name) for name in HOMES}

    def have(seen: dict[str, Any]) -> bool:
        return all(str(number) in one for one in seen.values())

    await come(offices, have, what=f"the office {number} in the log of each homeserver")


async def refused_by(running: World, name: str) -> None:
    """A write that is asked of one homeserver."""
    cluster = running.cluster
    one = RestClient({"alpha": [cluster.server(name).rest_url]}, {"alpha": cluster.client_token("alpha")})
    try:
        await one.call("alpha", "PUT", "/v1/tree/jobs/1", {"data": {}})
    finally:
        await one.aclose()


async def test_failures_row_42_members_with_different_histories_do_not_go_on_together() -> None:
    """Raft may take the entries of one for those of the other, where they have places and terms in common."""
    async with world(instances={"alpha": 3}, simservers=2, lease_term_s=LONG_S) as running:
        cluster = running.cluster
        await with_two_histories(running)
        for name in SERVERS:
            await cluster.stop(name)
        await each(partial(cluster.restart, same_code=True))
        # Who is ready may not have heard yet that the office was taken, and have nothing then in which they differ.
        await have_offices(running, 2)
        await each(cluster.stop)
        await swapped(running, "restored", "newest", "alpha.h1", "alpha.h2")
        why: list[str] = []

        async def started(name: str) -> None:
            try:
                await cluster.restart(name, same_code=True)
                # It may be ready before it has compared.
                await trio.sleep_forever()
            except ClusterFailed as error:
                why.append(str(error))

        async with trio.open_nursery() as nursery:
            for name in HOMES:
                nursery.start_soon(started, name)
            await ends_or_is_overwritten(running, "log_differs")
            nursery.cancel_scope.cancel()
        await each(cluster.stop)
        await swapped(running, "again", "newest", *HOMES)
        await each(partial(cluster.restart, same_code=True))
        for name in SERVERS:
            await cluster.restart(name, same_code=True)
        records = await running.until(lambda record: record["standing"] == "simulated")
        assert records[BALL]["epoch"] >= 4


async def is_not_alone(running: World, server: str) -> None:
    """Wait until nothing is durable by its disk alone any more: else its disk is waited for when it dies."""
    row = partial(running.client.call, "alpha", "GET", f"/v1/tree/leases/{server}")
    await come(row, lambda row: not row["data"].get("sole"), what=f"that {server} has a follower")


async def test_failures_row_42_what_only_the_older_log_gave_is_nobodys_when_the_newest_one_is_back() -> None:
    """Both logs give the same fences: of a stay that the newest one gave nothing is lost, whoever has a later tick."""
    async with world(simservers=2) as running:
        cluster = running.cluster
        log = cluster.directory / HOME
        newest, fence = await misled(running)
        await running.create(GHOST)
        assert (await running.here("alpha.s1", GHOST["id"]))["epoch"] == 1
        assert (await running.here("alpha.s1", BALL))["epoch"] >= 3, "the same that the other one has it under"
        cluster.resume("alpha.s2")
        await says(running, "log_went_back", HOME, *SERVERS)
        # What it was given stands on its disk by now, and that it followed an older log, too.
        await cluster.kill("alpha.s1")
        async with coming_up(running, "alpha.s1"):
            await says(running, "log_went_back", "alpha.s1")
            await cluster.stop(HOME)
            shutil.rmtree(log)
            newest.rename(log)
            await cluster.restart(HOME, same_code=True)
            await says(running, "ok", HOME, *SERVERS)
        for entity in (BALL, GHOST["id"]):
            await running.is_not_here("alpha.s1", entity)
        with pytest.raises(ApiFailure, match="not_found"):
            await running.client.call("alpha", "GET", f"/v1/entities/{GHOST['id']}")
        assert (await running.here("alpha.s2", BALL))["epoch"] == fence
        await is_not_alone(running, "alpha.s2")
        await running.push(10)
        await running.everything_durable()
        # The one who was misled is its follower, and has a later tick of the same fence by the older log.
        await cluster.kill("alpha.s2")
        await running.until(partial(is_with, "alpha.s1"))
        await running.exactly_once()
