"""The groups of `baton` for what an instance has: entities, players and transfers."""

import click

from batonpass.scenarios.cli.groups import LazyGroup

__all__ = ["entity", "player", "transfer"]


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
        "answer": ("batonpass.scenarios.remote.players:answer", "answer a question as the master of an entity"),
        "create": (
            "batonpass.scenarios.remote.players:create",
            "register a player, whose keys are made if there are none",
        ),
        "ls": ("batonpass.scenarios.remote.players:list_players", "the players, or those that fit"),
        "move": (
            "batonpass.scenarios.remote.players:move",
            "have an entity moved in a player's name, who owns it then",
        ),
        "rule": ("batonpass.scenarios.remote.players:set_rule", "set the rule of an entity as its master"),
        "show": (
            "batonpass.scenarios.remote.players:show_player",
            "one player: its keys, what it owns, what it is asked",
        ),
        "sign": ("batonpass.scenarios.remote.players:sign", "sign a statement, for requests by other programs"),
    },
    short_help="The players of a running instance: register, list, show, and act as one.",
)
def player() -> None:
    """Look at the players of a running instance, register one, and do what one of them signs.

    \b
    Where it is, the client token and the keys may be given once and for all:
      export BATON_URL=http://127.0.0.1:17103
      export BATON_TOKEN_FILE=playground/secrets/alpha.client-token
      export BATON_KEYS=ada
      baton player create alpha.ada
      baton player show alpha.ada
      baton player answer alpha.ada wish-0001 --allow
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
