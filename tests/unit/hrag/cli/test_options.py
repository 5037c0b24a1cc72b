"""Nothing is deleted before the user has confirmed it, or has given `--yes`."""

import io

import pytest
import typer

from hrag.cli.options import confirm
from hrag.cli.terminal import Failure


class Terminal(io.StringIO):
    """Standard input that looks like a terminal."""

    def isatty(self) -> bool:
        return True


def test_with_yes_no_question_is_asked(monkeypatch, capsys):
    monkeypatch.setattr("sys.stdin", io.StringIO())
    confirm("Delete it?", yes=True)
    assert capsys.readouterr().err == ""


def test_without_a_terminal_and_without_yes_the_command_fails(monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    with pytest.raises(Failure, match=r"no terminal to ask at: Delete it\? .+--yes") as refused:
        confirm("Delete it?", yes=False)
    assert refused.value.exit_code == 2


@pytest.mark.parametrize("answer", ["n\n", "\n"])
def test_a_user_who_does_not_agree_ends_the_command(monkeypatch, answer):
    monkeypatch.setattr("sys.stdin", Terminal(answer))
    with pytest.raises(typer.Abort):
        confirm("Delete it?", yes=False)
