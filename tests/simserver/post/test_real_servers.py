"""Messages between entities on servers that are processes: one is handed over meanwhile, one loses its server."""

from typing import Final

from batonpass.testing.running import running_cluster

ONE: Final = "alpha.one"
TWO: Final = "alpha.two"
SERVERS: Final = ("alpha.s1", "alpha.s2", "alpha.s3")
UPTO: Final = 60


def test_entities_have_all_that_others_sent_them_once_and_in_order_whatever_happens_to_their_servers() -> None:
    world = "tests.simserver.post.chatter:Chatter"
    with running_cluster(world, simservers=3, lease_term_s=2.0) as cluster:
        for entity, other, server in ((ONE, TWO, SERVERS[0]), (TWO, ONE, SERVERS[1])):
            to = [other, "alpha.nobody"]
            cluster.spawn(entity, "chatter", owner="alpha.ada", server=server, to=to, upto=UPTO)
        with cluster.connect("alpha.ada") as client:
            for entity in (ONE, TWO):
                steering = client.steer(entity)
                steering.durable(steering.give(b"begin"))
        cluster.until(lambda: cluster.state(TWO)["had"].get(ONE, 0) > 2)
        cluster.move(TWO, SERVERS[2])
        cluster.kill(SERVERS[0])
        cluster.until(lambda: cluster.authority(ONE) not in ("", SERVERS[0]))
        for entity, other in ((ONE, TWO), (TWO, ONE)):
            cluster.until(lambda entity=entity, other=other: cluster.state(entity)["had"].get(other) == UPTO)  # type: ignore[misc]
            state = cluster.state(entity)
            assert state["wrong"] == []
            assert state["refused"] == {"alpha.nobody": "no_such_entity"}
