"""Markup of models that a viewer would act on."""

import pytest

from retriever_svc.markers import MarkerFilter
from retriever_svc.markup_guard import hosts_in

HOSTS = hosts_in(["see https://known.example/a, //Other.example"])


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("![a](https://known.example)", "! [a](https://known.example)"),
        ("![9][a](b)", "! [a](b)"),
        ("`![a](b)`", "`! [a](b)`"),
        ("<img src=x> </a> <!--", "< img src=x> < /a> < !--"),
        ("a < b, 1<2, <3", "a < b, 1<2, <3"),
        ("`List<String>`", "`List<String>`"),
        ("https://KNOWN.example/a?b=c", "https://KNOWN.example/a?b=c"),
        ("http://other.example:8080/", "http://other.example:8080/"),
        ("http://known.example. Next.", "http://known.example. Next."),
        ("https://evil.example/s", "https:// evil.example/s"),
        ("[a](//evil.example)", "[a](// evil.example)"),
        ("https://known.exampl/s", "https://known.exampl /s"),
        ("https://known.example.evil/s", "https://known.example. evil/s"),
        ("https://known.example@evil/s", "https://known.example @evil/s"),
        ("https://known.example:80@evil/s", "https://known.example:80 @evil/s"),
        ("`https://evil.example/s`", "`https://evil.example/s`"),
        ("a // b", "a // b"),
    ],
)
@pytest.mark.parametrize("cut", [1, 100])
def test_a_blank_makes_it_text(said: str, shown: str, cut: int) -> None:
    reading = MarkerFilter(2, HOSTS)
    pieces = [reading.feed(said[at : at + cut]) for at in range(0, len(said), cut)]
    assert "".join([*pieces, reading.finish()]) == shown == reading.text


def test_a_marker_after_a_blank_that_was_added_has_its_own_place() -> None:
    reading = MarkerFilter(2)
    reading.feed("Yes![2]")
    reading.finish()
    (marker,) = reading.markers
    assert reading.text[marker.start : marker.end] == "[2]"
