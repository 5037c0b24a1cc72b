"""Lines of files, of which long ones are cut."""

from io import BytesIO

import pytest

from hrag.cli.ingest.lines import lines_of


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        (b"", []),
        (b"a\n\nbc", [(1, 0, 2, b"a\n"), (2, 2, 1, b"\n"), (3, 3, 2, b"bc")]),
        (b"12345678\nab", [(1, 0, 9, b"1234"), (2, 9, 2, b"ab")]),
        (b"1234\na", [(1, 0, 5, b"1234"), (2, 5, 1, b"a")]),
        (b"123\na", [(1, 0, 4, b"123\n"), (2, 4, 1, b"a")]),
        (b"123456789", [(1, 0, 9, b"1234")]),
    ],
)
def test_a_line_past_the_limit_is_cut_and_counts_as_one(content, lines):
    assert list(lines_of(BytesIO(content), 3)) == lines
