"""`baton completion`: what a shell reads so that it completes the commands of `baton`."""

import click
from click.shell_completion import get_completion_class

__all__ = ["completion"]

_VARIABLE = "_BATON_COMPLETE"


@click.command(short_help="What a shell reads so that it completes these commands.")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> int:
    """Write the script by which SHELL completes the commands and options of `baton`.

    \b
    bash, in ~/.bashrc:                    eval "$(baton completion bash)"
    zsh, in ~/.zshrc after compinit:       eval "$(baton completion zsh)"
    fish, once:  baton completion fish > ~/.config/fish/completions/baton.fish
    """
    made = get_completion_class(shell)
    if made is None:
        raise click.UsageError(f"there is no completion for {shell}")
    click.echo(made(context.find_root().command, {}, "baton", _VARIABLE).source())
    return 0
