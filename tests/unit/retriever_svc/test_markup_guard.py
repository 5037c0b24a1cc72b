"""An added blank turns markup that a viewer would act on into plain text."""

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
    """Returns the output for a text in pieces, with two passages, which name the hosts HOSTS."""
    marker_filter = MarkerFilter(2, HOSTS)
    text = "".join(map(marker_filter.feed, pieces)) + marker_filter.finish()
    assert text == marker_filter.text
    return text


@pytest.mark.parametrize(
    ("text", "expected"),
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
def test_a_blank_turns_images_tags_and_unknown_addresses_into_text(
    text: str, expected: str, cut: int
) -> None:
    assert shown(*(text[at : at + cut] for at in range(0, len(text), cut))) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # The address has more, fewer or other slashes than usual.
        ("https:////evil.example/s", "https://// evil.example/s"),
        ("https:/\\/evil.example/s", "https:/\\/ evil.example/s"),
        ("https\\://evil.example/s", "https\\:// evil.example/s"),
        ("[x](https:\\\\evil.example/a)", "[x](https: \\\\evil.example/a)"),
        ("[x](https:/evil.example/a)", "[x](https:/ evil.example/a)"),
        ("[x](https:evil.example/a)", "[x](https: evil.example/a)"),
        ("[x](\\\\evil.example/a)", "[x](\\ \\evil.example/a)"),
        ("[x](/\\evil.example/a)", "[x](/ \\evil.example/a)"),
        ("[x](HTTPS://evil.example/a)", "[x](HTTPS:// evil.example/a)"),
        # A user name, a port or punctuation stands before or after the host.
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
        # Character references stand for characters of the address.
        ("[x](https:&#47;&#47;evil.example/a)", "[x](https: & #47;& #47;evil.example/a)"),
        ("[x](https:/&#x2F;evil.example/a)", "[x](https:/ & #x2F;evil.example/a)"),
        ("https:&sol;&sol;evil.example/a", "https:&sol ;&sol ;evil.example/a"),
        ("https&colon;/&sol;evil.example/a", "https&colon ;/&sol ;evil.example/a"),
        ("[x](java&Tab;script:a)", "[x](java&Tab ;script:a)"),
        # The link has another scheme than `http` and `https`.
        ("[x](javascript:alert)", "[x](javascript :alert)"),
        ("[x](<data:text/html,a>)", "[x](< data :text/html,a>)"),
        ("[x]: mailto:a@evil.example", "[x]: mailto :a@evil.example"),
        ("[x]:\njavascript:alert", "[x]:\njavascript :alert"),
        ("[x](java\nscript:a)", "[x](java \nscript:a)"),
        # The link has another form, or contains a tab, a line end or a blank.
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
def test_an_address_that_may_lead_to_an_unknown_host_gets_a_blank(text: str, expected: str) -> None:
    assert shown(text) == expected


@pytest.mark.parametrize(
    "text",
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
def test_addresses_of_known_hosts_and_other_text_stay_unchanged(text: str) -> None:
    assert shown(text) == text


def test_hosts_are_read_from_addresses_without_the_punctuation_after_them() -> None:
    long = "a" * 300
    texts = ["At https://A.example:80/b. Or //c.example.", "_www.d.example_", f"//{long} //..."]
    assert hosts_in(texts) == {"a.example", "c.example", "www.d.example"}


def test_a_marker_directly_after_a_host_stays_a_marker() -> None:
    marker_filter = MarkerFilter(2, HOSTS)
    marker_filter.feed("See https://known.example[1].")
    marker_filter.finish()
    (marker,) = marker_filter.markers
    assert marker_filter.text == "See https://known.example [1]."
    assert marker_filter.text[marker.start : marker.end] == "[1]"


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
def test_the_output_does_not_depend_on_how_the_text_is_cut_into_pieces(
    text: str, data: Any
) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)))))
    pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    assert shown(*pieces) == shown(text)


@given(FRAGMENTS)
def test_the_guard_adds_only_blanks(text: str) -> None:
    guard = MarkupGuard(HOSTS)
    out = "".join(f" {char}" if guard.breaks(char, in_code=False) else char for char in text)
    assert re.sub(" ", "", out) == re.sub(" ", "", text)


@given(st.sampled_from(["", "[x](", "[x](<", "[x][x]\n\n[x]: "]), FRAGMENTS)
def test_links_that_a_viewer_renders_lead_to_no_unknown_host(start: str, text: str) -> None:
    """Some links have no host. The viewer and the guard may disagree on what is code."""
    source = start + text
    for ending in ("", ")", ">)"):
        for href in links(shown(source + ending)):
            assert is_known(href), (source + ending, shown(source + ending), href)


VIEWER = MarkdownIt("commonmark")
VIEWER.validateLink = lambda url: True  # type: ignore[method-assign]
VIEWER.normalizeLink = lambda url: url  # type: ignore[method-assign]
# GitHub turns an address in plain text into a link if it matches this pattern.
BARE_ADDRESS = re.compile(r"(?:https?://|(?<!\w)www(?=\.))[\w.-]+[^ \t\r\n\0]*", re.IGNORECASE)
# These characters at the end of an address in plain text are not part of the link.
END_PUNCTUATION = "\"'`)]}>*|,;!.:~?_"


def links(text: str) -> Iterator[str]:
    """Yields the addresses of the links and images, and in the text, of rendered Markdown."""
    for token in VIEWER.parse(text):
        if token.children:
            yield from _links(token.children)


def _links(tokens: Sequence[Token]) -> Iterator[str]:
    for token in tokens:
        yield from (str(token.attrs[name]) for name in ("href", "src") if name in token.attrs)
    texts = (token.content if token.type.startswith("text") else "\0" for token in tokens)
    for match in BARE_ADDRESS.findall("".join(texts)):
        address = match.rstrip(END_PUNCTUATION)
        yield f"http://{address}" if address[:4].lower() == "www." else address


def is_known(href: str) -> bool:
    """Returns True if a browser that opens the address reaches no unknown host.

    The browser follows the URL Standard of WHATWG. The beginning of a known host is allowed.
    Punctuation after the host is allowed too, because no host name ends with it.
    """
    address = re.sub(r"[\t\n\r]", "", href.strip())
    scheme, rest = re.fullmatch(r"(?:([a-z][a-z0-9+.-]*):)?(.*)", address, re.I | re.S).groups()  # type: ignore[union-attr]
    if scheme is None and not re.match(r"[/\\]{2}", rest):
        return True
    if scheme is not None and scheme.lower() not in ("http", "https"):
        return len(scheme) > 32 or scheme.lower() in HOSTS  # No program opens such a scheme.
    authority = re.split(r"[/\\?#]", rest.lstrip("/\\"), maxsplit=1)[0]
    host = unquote(re.sub(r":\d*$", "", authority.rpartition("@")[2]))
    if host.startswith("["):  # IPv6.
        return False
    is_valid = bool(host) and not re.search(r"[\x00-\x20#/:<>?@\[\\\]^|%\x7f]", host)
    return not is_valid or any(
        known.startswith(host.lower().rstrip(END_PUNCTUATION)) for known in HOSTS
    )


def test_the_range_of_a_marker_leaves_out_the_blank_that_the_guard_added() -> None:
    marker_filter = MarkerFilter(2)
    marker_filter.feed("Yes![2]")
    marker_filter.finish()
    (marker,) = marker_filter.markers
    assert marker_filter.text[marker.start : marker.end] == "[2]"
