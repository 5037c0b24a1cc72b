"""The command line of the load tests refuses wrong options."""

import pytest

from benchmarks.load.__main__ import parser


@pytest.mark.parametrize(
    "options",
    [
        ("--rate", "0"),
        ("--rate", "nan"),
        ("--rate", "-5"),
        ("--rate", "inf"),
        ("--rate", "fast"),
        ("--rate", "1", "--duration-s", "0"),
        ("--rate", "1", "--write-share", "1.5"),
        ("--rate", "1", "--tenants", "0"),
        ("--rate", "1", "--mode", "best"),
        (),
    ],
)
def test_a_wrong_option_is_refused(options, capsys):
    with pytest.raises(SystemExit) as ended:
        parser().parse_args(["run", *options])
    assert ended.value.code == 2
    assert "error: " in capsys.readouterr().err
