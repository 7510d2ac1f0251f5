"""Groups that import a command when it is used, so that `--help` and typing mistakes are answered at once."""

from importlib import import_module
from typing import Any

import click
from click.shell_completion import CompletionItem

__all__ = ["DefaultGroup", "LazyGroup"]


class LazyGroup(click.Group):
    """A group whose commands live in modules that are imported when one of them is used."""

    def __init__(self, *args: Any, members: dict[str, tuple[str, str]], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._members = members

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names of all of them, none imported."""
        return sorted({*self.commands, *self._members})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command, imported now."""
        if cmd_name not in self._members:
            return super().get_command(ctx, cmd_name)
        module, _, name = self._members[cmd_name][0].partition(":")
        command = getattr(import_module(module), name or "command")
        if not isinstance(command, click.Command):
            raise TypeError(f"{name or 'command'} of {module} is not a click command")
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Its commands and options that begin like that, none imported."""
        known = {name: command.get_short_help_str() for name, command in self.commands.items() if not command.hidden}
        known |= {name: help_ for name, (_, help_) in self._members.items()}
        found = [CompletionItem(name, help=known[name]) for name in sorted(known) if name.startswith(incomplete)]
        # Of a group, click's own would import each command; of a command it gives the options.
        return [*found, *click.Command.shell_complete(self, ctx, incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Each with its line of help, none imported."""
        here = {name: command.get_short_help_str(limit=100) for name, command in self.commands.items()}
        lazy = {name: member[1] for name, member in self._members.items()}
        with formatter.section("Commands"):
            formatter.write_dl(sorted((here | lazy).items()))


class DefaultGroup(LazyGroup):
    """A group that takes flags without a command as those of one of its commands."""

    def __init__(self, *args: Any, default: str, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._default = default

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put the default in front of flags."""
        if args and args[0].startswith("-") and args[0] not in ctx.help_option_names:
            args = [self._default, *args]
        return super().parse_args(ctx, args)
