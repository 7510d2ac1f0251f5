"""Asking the operator before something that cannot be undone: a no is an answer, and no interrupt."""

import click

__all__ = ["require_yes"]


def require_yes(question: str) -> None:
    """Ask; only a yes continues. Ctrl-C ends the command as anywhere (`click.Abort`).

    Raises:
        ClickException: it was answered no, or the input ended without an answer; the exit status is 1.
    """
    try:
        is_accepted = click.confirm(question)  # noqa: TID251 — all others asks by this
    except click.Abort as end:
        if not isinstance(end.__context__, EOFError):
            raise
        click.echo()
        raise click.ClickException("no answer, so nothing was changed: give --yes to be asked nothing") from end
    if not is_accepted:
        raise click.ClickException("the answer was no, so nothing was changed")
