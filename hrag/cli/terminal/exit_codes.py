"""The exit codes of `hrag`. Scripts rely on them; docs/guide/command-line.md lists them.

Two kinds of exit codes are not listed here: `hrag check` defines separate ones, and a command
that is interrupted by Ctrl-C ends with 130.
"""

from enum import IntEnum

from hrag.values import errors
from hrag.values.errors import HragError


class ExitCode(IntEnum):
    """The exit codes of all commands except `hrag check`."""

    OK = 0
    FAILED = 1
    USAGE = 2
    NOT_FOUND = 3
    UNAVAILABLE = 4
    DENIED = 5
    NOT_INSTALLED = 6


_CODES: dict[type[HragError], ExitCode] = {
    errors.CollectionNotFound: ExitCode.NOT_FOUND,
    errors.AliasNotFound: ExitCode.NOT_FOUND,
    errors.DocumentNotFound: ExitCode.NOT_FOUND,
    errors.ChunkNotFound: ExitCode.NOT_FOUND,
    errors.StoreMissing: ExitCode.NOT_FOUND,
    errors.ServiceUnavailable: ExitCode.UNAVAILABLE,
    errors.StoreUnavailable: ExitCode.UNAVAILABLE,
    errors.EmbedderUnavailable: ExitCode.UNAVAILABLE,
    errors.ChatUnavailable: ExitCode.UNAVAILABLE,
    errors.RerankerUnavailable: ExitCode.UNAVAILABLE,
    errors.DeadlineExceeded: ExitCode.UNAVAILABLE,
    errors.SequenceNotReached: ExitCode.UNAVAILABLE,
    errors.TooBusy: ExitCode.UNAVAILABLE,
    errors.RateQuotaExceeded: ExitCode.UNAVAILABLE,
    errors.Unauthenticated: ExitCode.DENIED,
    errors.PermissionDenied: ExitCode.DENIED,
}


def exit_code_of(error: HragError) -> ExitCode:
    """Returns the exit code of a command that ends with `error`."""
    codes = (_CODES[cls] for cls in type(error).__mro__ if cls in _CODES)
    return next(codes, ExitCode.FAILED)
