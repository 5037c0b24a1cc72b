"""Whether something is deleted without a question."""

import io

import pytest
import typer

from hrag.cli.options import confirm
from hrag.cli.terminal import Failure


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_yes_asks_nothing(monkeypatch, capsys):
    monkeypatch.setattr("sys.stdin", io.StringIO())
    confirm("Delete it?", yes=True)
    assert capsys.readouterr().err == ""


def test_without_a_terminal_it_is_refused(monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    with pytest.raises(Failure, match=r"no terminal to ask at: Delete it\? .+--yes") as refused:
        confirm("Delete it?", yes=False)
    assert refused.value.exit_code == 2


@pytest.mark.parametrize("answer", ["n\n", "\n"])
def test_a_user_who_does_not_agree_ends_the_command(monkeypatch, answer):
    monkeypatch.setattr("sys.stdin", Terminal(answer))
    monkeypatch.setattr("typer._click.termui.visible_prompt_func", lambda _: answer.strip())
    with pytest.raises(typer.Abort):
        confirm("Delete it?", yes=False)
