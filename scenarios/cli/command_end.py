"""What a command that did not end by itself leaves: one line on stderr, and the exit status."""

import os
import sys
import traceback
from contextlib import suppress

import click

from batonpass.scenarios.common.ending import status_of_the_end
from batonpass.scenarios.common.status import BAD_RESULT, BAD_USAGE, CLUSTER_FAILED, INTERRUPTED

__all__ = ["ended_by", "fail", "interrupted", "misused"]


def ended_by(error: BaseException) -> int:
    """The exit status of what a command did not end by itself; raises it again if it is no error."""
    if _is_interrupt(error):
        return interrupted()
    if _nobody_reads(error):
        # Python would complain once more when it flushes stdout at its end, so let that go nowhere.
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BAD_RESULT
    if not isinstance(error, Exception):
        raise error
    from batonpass.scenarios.cli.expected_errors import foreseeable

    problem = foreseeable(error)
    if problem is None:
        traceback.print_exc()
        return fail("this is an error in batonpass itself; please report it with the lines above", CLUSTER_FAILED)
    return fail(*problem)


def misused(error: click.UsageError) -> int:
    """The status of a command line that makes no sense, which is said with where to look."""
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        # A group without a command: its help, which is no sentence about a mistake.
        click.echo(error.format_message(), err=True)
        return BAD_USAGE
    hint = f" (see: {error.ctx.command_path} --help)" if error.ctx else ""
    return fail(error.format_message() + hint, BAD_USAGE)


def _is_interrupt(error: BaseException) -> bool:
    """Whether it is Ctrl-C, which a run's tree of tasks may have wrapped in groups."""
    if isinstance(error, BaseExceptionGroup):
        return error.subgroup(KeyboardInterrupt) is not None
    return isinstance(error, KeyboardInterrupt)


def _nobody_reads(error: BaseException) -> bool:
    """Whether what reads the output, as `head` does, has enough; tasks may have wrapped that in groups."""
    if isinstance(error, BaseExceptionGroup):
        return all(map(_nobody_reads, error.exceptions))
    return isinstance(error, BrokenPipeError)


def interrupted() -> int:
    """The status of Ctrl-C or SIGTERM, whichever it was."""
    status = status_of_the_end()
    return fail("interrupted" if status == INTERRUPTED else "ended by SIGTERM", status)


def fail(sentence: str, status: int) -> int:
    """The status, with a sentence for people."""
    click.echo(f"baton: {sentence}", err=True)
    return status
