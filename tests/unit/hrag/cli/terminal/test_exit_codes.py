"""Which exit code an error gives."""

import pytest

from hrag import errors
from hrag.cli.terminal.exit_codes import ExitCode, exit_code_of


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.DocumentNotFound, ExitCode.NOT_FOUND),
        (errors.CollectionNotFound, ExitCode.NOT_FOUND),
        (errors.StoreMissing, ExitCode.NOT_FOUND),
        (errors.RateQuotaExceeded, ExitCode.UNAVAILABLE),
        (errors.StorageQuotaExceeded, ExitCode.FAILED),
        (errors.PermissionDenied, ExitCode.DENIED),
        (errors.BlankDocument, ExitCode.FAILED),
    ],
)
def test_an_error_has_the_code_of_its_situation(error, code):
    assert exit_code_of(error("why")) is code
