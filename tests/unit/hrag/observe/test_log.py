"""Log lines have the configured format, and tracebacks contain no values of variables."""

import json
import logging
import subprocess
import sys
from textwrap import dedent

import pytest

# The program receives the secret as an argument, so that its source does not contain the secret.
# Since Python 3.13, a traceback also shows source lines of a program that was passed with -c.
_SECRET = "a secret text"
_LOGS = dedent(
    """
    import logging, sys, threading, structlog
    from hrag.observe import log
    log.configure("indexer", sys.argv[1], "info")
    def handle(text):
        raise ValueError("broken")
    structlog.get_logger().debug("unheard")
    thread = threading.Thread(target=lambda: structlog.get_logger().info("serving", port=50051))
    thread.start()
    thread.join()
    logging.getLogger("library").warning("old news")
    try:
        handle(sys.argv[2])
    except ValueError as error:
        structlog.get_logger().error("internal_error", id="4711", exc_info=error)
    """
)


def _logged(log_format: str) -> str:
    """Runs a process that logs in this format. Returns its stderr; asserts that stdout is empty."""
    process = subprocess.run(
        [sys.executable, "-c", _LOGS, log_format, _SECRET],
        check=True,
        capture_output=True,
        text=True,
    )
    assert process.stdout == ""
    return process.stderr


@pytest.mark.parametrize("log_format", ["console", "json"])
def test_a_logged_traceback_contains_no_values_of_variables(log_format: str) -> None:
    output = _logged(log_format)
    assert "internal_error" in output
    assert "ValueError" in output
    assert "broken" in output
    assert _SECRET not in output


def test_json_lines_contain_service_process_level_and_time() -> None:
    serving, warning, error = map(json.loads, _logged("json").splitlines())
    assert serving["event"] == "serving"
    assert serving["port"] == 50051
    assert warning["event"] == "old news"
    assert error["id"] == "4711"
    assert error["exception"][0]["exc_type"] == "ValueError"
    for line in (serving, warning, error):
        assert line["service"] == "indexer"
        assert line["pid"] > 0
        assert "timestamp" in line
    levels = [line["level"] for line in (serving, warning, error)]
    assert [logging.getLevelName(level.upper()) for level in levels] == [20, 30, 40]


def test_lines_below_the_level_are_not_written() -> None:
    assert "unheard" not in _logged("console")
