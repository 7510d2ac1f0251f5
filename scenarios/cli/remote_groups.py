"""The groups of `baton` for what an instance has: entities and transfers."""

import click

from batonpass.scenarios.cli.groups import LazyGroup

__all__ = ["entity", "transfer"]


@click.group(
    cls=LazyGroup,
    members={
        "delete": ("batonpass.scenarios.remote.entities:delete", "delete it for good, without its master"),
        "ls": ("batonpass.scenarios.remote.entities:list_entities", "the entities, or those that fit"),
        "move": ("batonpass.scenarios.remote.entities:move", "have it moved to another server"),
        "show": (
            "batonpass.scenarios.remote.entities:show_entity",
            "one entity: its rights, its fence, how it stands",
        ),
    },
    short_help="The entities of a running instance: list, show, move, delete.",
)
def entity() -> None:
    """Look at the entities of a running instance, and move or delete one.

    \b
    Where it is, and the tokens, may be given once and for all:
      export BATON_URL=http://127.0.0.1:17103
      export BATON_TOKEN_FILE=playground/secrets/alpha.client-token
      baton entity ls --server alpha.s1
      baton entity move alpha.ball-1 alpha.s2
    """


@click.group(
    cls=LazyGroup,
    members={
        "cancel": ("batonpass.scenarios.remote.transfers:take_back", "take back a move that is not decided yet"),
        "ls": ("batonpass.scenarios.remote.transfers:list_transfers", "the last ones that were begun"),
        "show": ("batonpass.scenarios.remote.transfers:show_one", "one transfer, hop by hop"),
    },
    short_help="The transfers of a running instance: list, show, cancel.",
)
def transfer() -> None:
    """Look at the transfers of a running instance, and take one back.

    \b
    Where it is may be given once and for all:
      export BATON_URL=http://127.0.0.1:17103
      baton transfer ls
      baton transfer show wish-0001
    """
