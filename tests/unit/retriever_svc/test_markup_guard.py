"""Markup of models that a viewer would act on."""

import re
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token

from retriever_svc.markers import MarkerFilter
from retriever_svc.markup_guard import MarkupGuard, hosts_in

HOSTS = hosts_in(["see https://known.example/a, //Other.example", "or www.named.example."])


def shown(*pieces: str) -> str:
    """The text that comes out of pieces, of an answer from two passages that name the hosts."""
    reading = MarkerFilter(2, HOSTS)
    text = "".join(map(reading.feed, pieces)) + reading.finish()
    assert text == reading.text
    return text


@pytest.mark.parametrize(
    ("said", "expected"),
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
        ("`https://evil.example/s`", "`https:// evil.example/s`"),
        ("\\` [x](https://evil.example/s)", "\\` [x](https:// evil.example/s)"),
        ("a ```\n[x](https://evil.example/s)", "a ```\n[x](https:// evil.example/s)"),
        ("a // b", "a // b"),
    ],
)
@pytest.mark.parametrize("cut", [1, 100])
def test_a_blank_makes_it_text(said: str, expected: str, cut: int) -> None:
    assert shown(*(said[at : at + cut] for at in range(0, len(said), cut))) == expected


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        # More slashes, other slashes, fewer slashes.
        ("https:////evil.example/s", "https://// evil.example/s"),
        ("https:/\\/evil.example/s", "https:/\\/ evil.example/s"),
        ("https\\://evil.example/s", "https\\:// evil.example/s"),
        ("[x](https:\\\\evil.example/a)", "[x](https: \\\\evil.example/a)"),
        ("[x](https:/evil.example/a)", "[x](https:/ evil.example/a)"),
        ("[x](https:evil.example/a)", "[x](https: evil.example/a)"),
        ("[x](\\\\evil.example/a)", "[x](\\ \\evil.example/a)"),
        ("[x](/\\evil.example/a)", "[x](/ \\evil.example/a)"),
        ("[x](HTTPS://evil.example/a)", "[x](HTTPS:// evil.example/a)"),
        # What may stand before or behind a host in an address.
        ("[x](https://[2001:db8::1]/a)", "[x](https:// [2001:db8::1]/a)"),
        ('[x](https://"@evil.example/a)', '[x](https:// "@ evil.example/a)'),
        ("[x](https://known.example@evil/a)", "[x](https://known.example @ evil/a)"),
        ("[x](https://known.example,@evil/a)", "[x](https://known.example, @ evil/a)"),
        ("https://known.example](_a@evil/a", "https://known.example](_a @evil/a"),
        ("https://known.example;x@evil/a", "https://known.example; x@evil/a"),
        ("https://known.example*.evil/a", "https://known.example*. evil/a"),
        ("https://known.example\\.evil/a", "https://known.example \\.evil/a"),
        ("https://known.example:8x@evil/a", "https://known.example:8 x@evil/a"),
        ("https://known.example%2eevil/a", "https://known.example %2eevil/a"),
        ("https://known。example/a", "https://known 。example/a"),
        ("https://ｅvil.example/a", "https:// ｅvil.example/a"),
        ("[x](https://known.example`a`.evil/a)", "[x](https://known.example` a`.evil/a)"),
        # Character references.
        ("[x](https:&#47;&#47;evil.example/a)", "[x](https: & #47;& #47;evil.example/a)"),
        ("[x](https:/&#x2F;evil.example/a)", "[x](https:/ & #x2F;evil.example/a)"),
        ("https:&sol;&sol;evil.example/a", "https:&sol ;&sol ;evil.example/a"),
        ("https&colon;/&sol;evil.example/a", "https&colon ;/&sol ;evil.example/a"),
        ("[x](java&Tab;script:a)", "[x](java&Tab ;script:a)"),
        # Schemes.
        ("[x](javascript:alert)", "[x](javascript :alert)"),
        ("[x](<data:text/html,a>)", "[x](< data :text/html,a>)"),
        ("[x]: mailto:a@evil.example", "[x]: mailto :a@evil.example"),
        ("[x]:\njavascript:alert", "[x]:\njavascript :alert"),
        ("[x](java\nscript:a)", "[x](java \nscript:a)"),
        # Other forms of links.
        ("[x]: https://evil.example/a", "[x]: https:// evil.example/a"),
        ("<https://evil.example/a>", "< https:// evil.example/a>"),
        ("www.evil.example/a", "www. evil.example/a"),
        ("(WWW\\.evil.example/a", "(WWW\\. evil.example/a"),
        ("[x](https:/\t/evil.example/a)", "[x](https:/ \t/evil.example/a)"),
        ("[x](<https:/\t/evil.example/a>)", "[x](< https:/ \t/evil.example/a>)"),
        ("[x](https://known.example\n.evil/a)", "[x](https://known.example \n.evil/a)"),
        ("[x](https://known.example x@evil/a)", "[x](https://known.example x@ evil/a)"),
        ("[x](https:y [a](b) x@evil/a)", "[x](https: y [a](b) x@ evil/a)"),
    ],
)
def test_what_is_not_plainly_a_known_host_gets_a_blank(said: str, expected: str) -> None:
    assert shown(said) == expected


@pytest.mark.parametrize(
    "said",
    [
        "[a](https://known.example) and [b](http://known.example/b?c=d&amp;e#f).",
        "[a](https://known.example)を参照 [c](//other.example:8080/x(y)) a@b.example",
        "[https://known.example](https://known.example/a), **https://known.example**, next",
        '"https://known.example", (https://known.example). https://known.example: so',
        "| https://known.example | https://known.example/a |\nhttps://known.example\nwww.",
        "[1]: https://known.example/a\n[2]: https://other.example 'Title'",
        "https://known.example/a[1]",
        "https://www.named.example/a or www.named.example, www.named.example/b",
        "[a](page.html) [b](#part) [c](/base/a@b) [d](../up) [e]() [f](packages/@x/y)",
        "Note: this. [note]: See below. As [1] says:\n\nNote: 1/2 and/or a:b; $1/\\sqrt{2}$ \\\\ x",
        "Fish &amp; chips &mdash; 5 &lt; 6&nbsp;&times;&copy; AT&T; R&D, a@b.example",
        "C:\\path, 10:30, key:value, wwww.x, awww.x, www",
    ],
)
def test_all_else_stays_as_it_is(said: str) -> None:
    assert shown(said) == said


def test_hosts_are_those_of_addresses_without_the_end_of_a_sentence() -> None:
    long = "a" * 300
    texts = ["At https://A.example:80/b. Or //c.example.", "_www.d.example_", f"//{long} //..."]
    assert hosts_in(texts) == {"a.example", "c.example", "www.d.example"}


def test_a_marker_behind_a_host_stays_whole() -> None:
    reading = MarkerFilter(2, HOSTS)
    reading.feed("See https://known.example[1].")
    reading.finish()
    (marker,) = reading.markers
    assert reading.text == "See https://known.example [1]."
    assert reading.text[marker.start : marker.end] == "[1]"


FRAGMENTS = st.lists(
    st.sampled_from(
        [
            *"[]()<>/\\.:@,*'\"!?#-_&;`\t\n x1ｅ。",
            *("[x](", "](", "[x]: ", "\n\n", "[1]", "www.", "www", "%2e"),
            *("http", "https:", "HTTPS", "//", "javascript:", "data:", "mailto:"),
            *("&#47;", "&#x2F;", "&#104;", "&#", "&sol;", "&colon;", "&Tab;", "&amp;"),
            *("evil", "evil.example", "known.example", "known.exampl", "www.named.example"),
        ]
    )
).map("".join)


@given(FRAGMENTS, st.data())
def test_it_does_not_matter_where_the_text_is_cut(text: str, data: Any) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)))))
    pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    assert shown(*pieces) == shown(text)


@given(FRAGMENTS)
def test_nothing_but_blanks_is_added(text: str) -> None:
    guard = MarkupGuard(HOSTS)
    out = "".join(f" {each}" if guard.breaks(each, in_code=False) else each for each in text)
    assert re.sub(" ", "", out) == re.sub(" ", "", text)


@given(st.sampled_from(["", "[x](", "[x](<", "[x][x]\n\n[x]: "]), FRAGMENTS)
def test_links_that_a_viewer_makes_lead_to_known_hosts(start: str, text: str) -> None:
    """Or to none, wherever a viewer finds code."""
    said = start + text
    for ending in ("", ")", ">)"):
        for href in links(shown(said + ending)):
            assert is_known(href), (said + ending, shown(said + ending), href)


VIEWER = MarkdownIt("commonmark")
VIEWER.validateLink = lambda url: True  # type: ignore[method-assign]
VIEWER.normalizeLink = lambda url: url  # type: ignore[method-assign]
# As GitHub finds them in text, and less of what ends a sentence.
BARE = re.compile(r"(?:https?://|(?<!\w)www(?=\.))[\w.-]+[^ \t\r\n\0]*", re.IGNORECASE)
ENDS = "\"'`)]}>*|,;!.:~?_"


def links(text: str) -> Iterator[str]:
    """The addresses of links and images, and those that are text, of rendered Markdown."""
    for token in VIEWER.parse(text):
        if token.children:
            yield from _links(token.children)


def _links(tokens: Sequence[Token]) -> Iterator[str]:
    for each in tokens:
        yield from (str(each.attrs[name]) for name in ("href", "src") if name in each.attrs)
    texts = (each.content if each.type.startswith("text") else "\0" for each in tokens)
    for found in BARE.findall("".join(texts)):
        bare = found.rstrip(ENDS)
        yield f"http://{bare}" if bare[:4].lower() == "www." else bare


def is_known(href: str) -> bool:
    """Whether a browser that reads an address goes nowhere else than to a known host.

    One that a known host goes on from is allowed, and so is punctuation at the end, because no
    name ends in it. Follows the URL Standard of WHATWG.
    """
    address = re.sub(r"[\t\n\r]", "", href.strip())
    scheme, rest = re.fullmatch(r"(?:([a-z][a-z0-9+.-]*):)?(.*)", address, re.I | re.S).groups()  # type: ignore[union-attr]
    if scheme is None and not re.match(r"[/\\]{2}", rest):
        return True
    if scheme is not None and scheme.lower() not in ("http", "https"):
        return len(scheme) > 32 or scheme.lower() in HOSTS  # No program has one of these.
    authority = re.split(r"[/\\?#]", rest.lstrip("/\\"), maxsplit=1)[0]
    host = unquote(re.sub(r":\d*$", "", authority.rpartition("@")[2]))
    if host.startswith("["):  # IPv6.
        return False
    is_valid = bool(host) and not re.search(r"[\x00-\x20#/:<>?@\[\\\]^|%\x7f]", host)
    return not is_valid or any(each.startswith(host.lower().rstrip(ENDS)) for each in HOSTS)


def test_a_marker_after_a_blank_that_was_added_has_its_own_place() -> None:
    reading = MarkerFilter(2)
    reading.feed("Yes![2]")
    reading.finish()
    (marker,) = reading.markers
    assert reading.text[marker.start : marker.end] == "[2]"
