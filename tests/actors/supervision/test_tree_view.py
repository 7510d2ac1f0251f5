"""A supervision tree as text."""

from batonpass.actors import ActorSpec, DynamicSupervisorSpec, Restart, ServiceSpec, Strategy, SupervisorSpec
from batonpass.actors.supervision.tree_view import draw, outline
from tests.actors.servers import Counter


async def serve(*, task_status: object) -> None:
    raise NotImplementedError("nobody starts it here")


TREE = SupervisorSpec(
    "museum",
    (
        ServiceSpec("doors", serve),
        SupervisorSpec(
            "halls",
            (
                DynamicSupervisorSpec("visitors", max_restarts=100),
                ActorSpec("guard", Counter, restart=Restart.TRANSIENT),
            ),
            strategy=Strategy.REST_FOR_ONE,
            window_s=0.5,
        ),
        ActorSpec("till", Counter),
    ),
)


def test_it_is_drawn_in_the_order_of_starting() -> None:
    assert draw(TREE).splitlines() == [
        "museum  (supervisor, one_for_one, gives up beyond 3 in 5 s)",
        "├─ doors  (service, permanent)",
        "├─ halls  (supervisor, rest_for_one, gives up beyond 3 in 0.5 s)",
        "│  ├─ visitors  (dynamic supervisor, gives up beyond 100 in 5 s)",
        "│  └─ guard  (actor, transient)",
        "└─ till  (actor, permanent)",
    ]


def test_everybody_has_a_path() -> None:
    assert ["/".join(path) for path, _ in outline(TREE)] == [
        "museum",
        "museum/doors",
        "museum/halls",
        "museum/halls/visitors",
        "museum/halls/guard",
        "museum/till",
    ]
