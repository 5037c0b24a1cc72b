"""Finds the parts of a web page that surround its content: boilerplate.

Boilerplate is navigation, notices about cookies, page headers and footers, sidebars, links to
other articles, and offers to share or to subscribe. It is the same on every page of a site, so a
search would find it everywhere.

The page is visited once. Each block element gets the number of its letters, and of those in links.
Then three kinds of evidence decide, in this order:

1. **What the page says itself**: the elements `nav`, `header` and `footer` of the page, roles, and
   the names of cookie notices.
2. **Where the content is**: in `main`, in an element with the role `main`, or in the only
   `article`. If it has enough text, everything outside is boilerplate. A heading of level 1 outside
   is kept if the content has none.
3. **Where the page does not say it**: names like `sidebar` or `breadcrumbs`, and lists that
   consist of short links, as long as they are a small part of the page's text.

No article may be lost. An element is kept if it contains the content or a large part of the text
outside of links. If too little text would remain, the third kind of evidence is not used; if still
too little would remain, for example because the page is a list of links, the whole page is kept.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from selectolax.lexbor import LexborHTMLParser, LexborNode

from indexer_svc.parsers.html_nodes import (
    BLOCKS,
    HEADINGS,
    PREFORMATTED,
    WIDE_CHARACTER,
    Attributes,
    heading_depth,
    holders,
    walk,
    words_of,
)
from indexer_svc.parsers.html_visibility import Visibility

# Text outside of links with fewer letters than this is too little for an article.
_MIN_ARTICLE_LETTERS = 120
_MIN_LETTERS = 20
_MIN_KEPT_SHARE = 0.5
_MIN_CONTENT_SHARE = 0.3
# A page of links has little text outside of links. So a share of all its letters must remain too.
_MIN_LETTERS_SHARE = 0.3
# Content that the page itself marks may be short, but not empty.
_MIN_MARKED_LETTERS = 40
# A part with a larger share of the text outside of links is not left out because of its name.
_MAX_NAMED_SHARE = 0.25
_MIN_NAMED_LINK_SHARE = 0.5
_MAX_PROMOTION_LETTERS = 600
# A part this short, for example a copyright notice, need not consist of links.
_MAX_NAVIGATION_LETTERS = 80
_MAX_FOOTER_LETTERS = 300
# Inside of the content, longer parts with these names are captions and remarks.
_MAX_INNER_LETTERS = 24
_MAX_ID_WORDS = 2
_MAX_NAVIGATION_SHARE = 0.5
_MAX_NOTICE_LETTERS = 4_000
# A list is a menu if it has at least _MIN_MENU_LINKS short links, and if the links have this share
# of its letters.
_MENU_LINK_SHARE = 0.75
_CONTENTS_LINK_SHARE = 0.6
_MIN_MENU_LINKS = 3
_MAX_MENU_LINK_LETTERS = 32
_MAX_HEADLINES_SHARE = 0.3

_NAVIGATION_ROLES = frozenset((
    *("navigation", "search", "menu", "menubar", "toolbar", "contentinfo", "alertdialog", "dialog"),
    "doc-toc",
))  # fmt: skip
_NEVER_NAMED = frozenset(("a", *HEADINGS, *PREFORMATTED))
_INNER = ("li", "td", "th", "tr", "p", "tbody", "dt", "dd")
_CONTENT_TAGS = ("main", "article")
_SECTIONS = frozenset(("main", "article", "section", "blockquote", "figure", "li", "td"))
_NOTICE = frozenset((
    *("consent", "gdpr", "ccpa", "onetrust", "cookiebot", "usercentrics", "didomi", "quantcast"),
    *("trustarc", "osano", "klaro", "cookieconsent", "cookiebanner", "cookienotice", "cookiebar"),
))  # fmt: skip
_COOKIE = frozenset(("cookie", "cookies"))
_NOTICE_FORM = frozenset((
    *("banner", "notice", "bar", "popup", "modal", "message", "warning", "alert", "overlay"),
    *("dialog", "disclaimer", "hint", "box"),
))  # fmt: skip
# Parts with these names are boilerplate if they consist of links. In some manuals a `sidebar` is a
# text that explains something.
_NAVIGATION_NAMES = frozenset((
    *("breadcrumb", "breadcrumbs", "pagination", "pager", "paginator", "sidebar", "sidenav"),
    *("sphinxsidebar", "related", "recommended", "recommendations", "navbar", "nav", "navigation"),
    *("menu", "topbar", "toolbar", "masthead"),
    *("prevnext", "flyout", "drawer", "widget", "widgets", "searchbox", "navheader", "navfooter"),
))  # fmt: skip
# Parts with these names are boilerplate also without a link. The other names of navigation and
# promotion are words of texts too: `menu-item`, `share-price`, `social-history`.
_NAMES_WITHOUT_LINKS = frozenset((
    *("breadcrumb", "breadcrumbs", "pagination", "pager", "paginator", "prevnext", "searchbox"),
    *("navheader", "navfooter", "sphinxsidebar", "advert", "advertisement", "ads", "ad"),
    *("newsletter", "subscribe", "signup", "paywall"),
))  # fmt: skip
# Parts with these names are boilerplate if they are short.
_PROMOTION_NAMES = frozenset((
    *("share", "sharing", "social", "newsletter", "subscribe", "signup", "advert"),
    *("advertisement", "ads", "ad", "sponsor", "sponsored", "promo", "popup"),
    *("modal", "paywall"),
))  # fmt: skip
_FOOTER_NAMES = frozenset(("footer", "colophon", "copyright", "imprint"))
# With one of these names too, it is the foot of a part of the content.
_NOTE_NAMES = frozenset(("note", "notes", "footnote", "footnotes", "table", "figure"))
_ALL_NAMES = _NAVIGATION_NAMES | _FOOTER_NAMES
_HEADING = ", ".join(HEADINGS)
_CONTROL = "button, a, input"
_TEXT_FIELD = (
    "textarea, input[type=text], input[type=email], input[type=password], input:not([type])"
)
_CONTENTS_NAMES = frozenset(("toc", "contents", "toctree", "tableofcontents"))
_SKIP = re.compile(
    r"\W*(?:skip|jump|zum|aller|ir|saltar)\s+(?:to|zu|inhalt|au|al)\b", re.IGNORECASE
)
# A Chinese or Japanese character says as much as this many letters.
_LETTERS_OF_WIDE = 3
_MAX_EXAMPLE_CHARS = 400


@dataclass(slots=True)
class _PagePart:
    """A block element, or a link. `letters` and the other counts include those of its content.

    `end` is the index after the last part inside of it.
    """

    node: LexborNode
    tag: str
    parent: int
    is_in_section: bool
    end: int = 0
    letters: int = 0
    link_letters: int = 0
    heading_letters: int = 0
    links: int = 0
    links_to_page: int = 0
    has_title: bool = False
    has_content: bool = False
    has_heading: bool = False
    has_control: bool = False
    has_text_field: bool = False

    @property
    def prose(self) -> int:
        """The number of letters outside of links."""
        return self.letters - self.link_letters

    @property
    def has_text(self) -> bool:
        """True if there is text that is neither in a link nor in a heading."""
        return self.letters > self.link_letters + self.heading_letters


def boilerplate_of(page: LexborHTMLParser) -> dict[int, str]:
    """Returns the boilerplate of a page: the `mem_id` of each element with the start of its text.

    Elements without text are not returned.
    """
    if page.body is None:
        return {}
    visibility = Visibility(page)
    parts = _PartReader(visibility).read(page.body)
    _note_elements(page, parts)
    marked = _marked(parts)
    content = _content(parts, marked)
    if content is None and not parts[0].has_text:
        return {}
    all_evidence = marked | _outside(parts, content) | _unmarked(parts, content)
    for left_out, min_letters, min_share in (
        (all_evidence, _MIN_ARTICLE_LETTERS if content is None else _MIN_LETTERS, _MIN_KEPT_SHARE),
        (marked, _MIN_LETTERS, _MIN_CONTENT_SHARE),
    ):
        outermost = _outermost(parts, left_out)
        prose = parts[0].prose - sum(parts[at].prose for at in outermost)
        letters = parts[0].letters - sum(parts[at].letters for at in outermost)
        is_large = prose >= min_share * parts[0].prose > 0 and letters >= (
            _MIN_LETTERS_SHARE * parts[0].letters
        )
        if letters and (prose >= min_letters or is_large):
            return _examples(parts, outermost, visibility)
    return {}


def navigation_of(page: LexborHTMLParser) -> dict[int, str]:
    """Returns the outermost elements `nav` of a page, as `boilerplate_of` does."""
    found: dict[int, str] = {}
    # For elements around an element `nav`: whether they are in an element `nav`.
    inside: dict[int, bool] = {}
    for nav in page.css("nav"):
        between = []
        node = nav.parent
        while node is not None and node.tag != "nav" and node.mem_id not in inside:
            between.append(node.mem_id)
            node = node.parent
        is_inside = node is not None and inside.get(node.mem_id, True)
        inside |= dict.fromkeys(between, is_inside)
        if not is_inside:
            found[nav.mem_id] = " ".join(nav.text()[:_MAX_EXAMPLE_CHARS].split())
    return found


def _note_elements(page: LexborHTMLParser, parts: list[_PagePart]) -> None:
    """Notes in each part which elements it contains or is, also those that are not shown."""
    with_heading, with_control, with_text_field = (
        holders(page, selector) for selector in (_HEADING, _CONTROL, _TEXT_FIELD)
    )
    for part in parts:
        part.has_heading = part.node.mem_id in with_heading
        part.has_control = part.node.mem_id in with_control
        part.has_text_field = part.node.mem_id in with_text_field


class _PartReader:
    """Visits a page's body and makes a part of each block element."""

    def __init__(self, visibility: Visibility) -> None:
        self._shows = visibility.shows
        self._parts: list[_PagePart] = []
        self._open: list[int] = []
        self._links: list[int] = []

    def read(self, body: LexborNode) -> list[_PagePart]:
        """Returns the parts in document order. The first part is the body."""
        self._begin(body, "body")
        walk(body, self._shows, self._enter, self._leave)
        self._end()
        return self._parts

    def _enter(self, node: LexborNode) -> bool:
        if node.is_text_node:
            self._count(node.text_content or "")
            return False
        tag = node.tag or ""
        if tag in ("svg", "script", "math"):
            return False
        if tag in BLOCKS or tag == "a":
            self._begin(node, tag)
        elif tag == "button":
            self._links.append(node.mem_id)
        return True

    def _leave(self, node: LexborNode) -> None:
        tag = node.tag or ""
        if tag in BLOCKS or tag == "a":
            self._end()
        if self._links and self._links[-1] == node.mem_id:
            self._links.pop()

    def _begin(self, node: LexborNode, tag: str) -> None:
        parent = self._open[-1] if self._open else -1
        is_in_section = parent >= 0 and (
            self._parts[parent].is_in_section or _is_section(self._parts[parent])
        )
        self._open.append(len(self._parts))
        part = _PagePart(node, tag, parent, is_in_section)
        self._parts.append(part)
        if tag == "a" and "href" in node.attributes:
            part.links = 1
            part.links_to_page = int((node.attributes["href"] or "").startswith("#"))
            self._links.append(node.mem_id)

    def _end(self) -> None:
        part = self._parts[self._open.pop()]
        part.end = len(self._parts)
        attributes = part.node.attributes
        depth = heading_depth(part.tag, attributes)
        part.has_title |= bool(part.letters) and depth == 1
        if depth:
            part.heading_letters = part.prose
        if part.parent < 0:
            return
        parent = self._parts[part.parent]
        parent.letters += part.letters
        parent.link_letters += part.link_letters
        parent.heading_letters += part.heading_letters
        parent.links += part.links
        parent.links_to_page += part.links_to_page
        parent.has_title |= part.has_title
        parent.has_content |= part.has_content or _is_content(part.tag, attributes)

    def _count(self, text: str) -> None:
        letters = len("".join(text.split()))
        if not letters:
            return
        letters += (_LETTERS_OF_WIDE - 1) * len(WIDE_CHARACTER.findall(text))
        part = self._parts[self._open[-1]]
        part.letters += letters
        if self._links:
            part.link_letters += letters


def _is_section(part: _PagePart) -> bool:
    return part.tag in _SECTIONS or part.node.attributes.get("role") == "main"


def _is_content(tag: str, attributes: Attributes) -> bool:
    return tag in _CONTENT_TAGS or attributes.get("role") in _CONTENT_TAGS


def _holds_content(part: _PagePart) -> bool:
    return part.has_content or _is_content(part.tag, part.node.attributes) or part.tag == "body"


def _marked(parts: list[_PagePart]) -> set[int]:
    """Returns the parts that the page itself marks as boilerplate."""
    prose = parts[0].prose
    marked = set()
    for at, part in enumerate(parts):
        if not part.letters or _holds_content(part):
            continue
        attributes = part.node.attributes
        limit = -1.0  # The largest number of letters outside of links that may be left out.
        if part.tag == "a":
            limit = part.prose if _is_skip_link(part, attributes) else -1.0
        elif _is_notice(part, attributes):
            limit = part.prose
        elif _is_navigation(part, attributes):
            limit = max(_MAX_NAVIGATION_SHARE * prose, _MIN_LETTERS)
        elif part.tag == "header" and not part.is_in_section:
            limit = _MAX_NAMED_SHARE * prose
        if part.prose <= limit and not part.has_title:
            marked.add(at)
    return marked


def _is_navigation(part: _PagePart, attributes: Attributes) -> bool:
    if attributes.get("role") in _NAVIGATION_ROLES or part.tag in ("nav", "search"):
        return True
    return part.tag == "footer" and not part.is_in_section


def _is_notice(part: _PagePart, attributes: Attributes) -> bool:
    """Returns True for a notice that asks for consent to cookies, by its names."""
    if part.letters > _MAX_NOTICE_LETTERS or part.has_title or part.is_in_section:
        return False
    words = words_of(attributes, "id", "class", "aria-label")
    is_named = not words.isdisjoint(_NOTICE) or (
        not words.isdisjoint(_COOKIE) and not words.isdisjoint(_NOTICE_FORM)
    )
    return is_named and part.has_control


def _is_skip_link(part: _PagePart, attributes: Attributes) -> bool:
    target = attributes.get("href") or ""
    return target.startswith("#") and bool(_SKIP.match(part.node.text()[:80]))


def _content(parts: list[_PagePart], marked: set[int]) -> int | None:
    """Returns the part that contains the page's content, or None if the page does not say it."""
    mains, articles = [], []
    inside_article = 0
    for at, part in enumerate(parts):
        attributes = part.node.attributes
        if part.tag == "main" or attributes.get("role") == "main":
            mains.append(at)
        elif part.tag == "article" and at >= inside_article:
            articles.append(at)
            inside_article = part.end
    prose = parts[0].prose - sum(parts[at].prose for at in _outermost(parts, marked))
    if mains:
        main = max(mains, key=lambda at: parts[at].prose)
        if parts[main].prose >= min(_MIN_MARKED_LETTERS, _MIN_KEPT_SHARE * prose):
            return main
    if len(articles) == 1 and parts[articles[0]].prose >= _MIN_KEPT_SHARE * prose > 0:
        return articles[0]
    return None


def _outside(parts: list[_PagePart], content: int | None) -> set[int]:
    """Returns the parts outside of the content, without headings that the content lacks."""
    if content is None:
        return set()
    main = parts[content]
    path = set(_ancestors(parts, content))
    outside = set()
    for at, part in enumerate(parts):
        if at in path or content <= at < main.end or not part.letters:
            continue
        if main.has_title or not part.has_title:
            outside.add(at)
    return outside


def _ancestors(parts: list[_PagePart], at: int) -> Iterable[int]:
    while at >= 0:
        yield at
        at = parts[at].parent


def _unmarked(parts: list[_PagePart], content: int | None) -> set[int]:
    """Returns the parts that are boilerplate by their names, or because they are menus."""
    prose = parts[0].prose
    unmarked = set()
    for at, part in enumerate(parts):
        if not part.letters or part.tag in _NEVER_NAMED or part.has_title or _holds_content(part):
            continue
        is_in_content = content is not None or part.is_in_section
        share = part.link_letters / part.letters
        if _is_contents(part, share):
            unmarked.add(at)
            continue
        is_inner = part.tag in _INNER and is_in_content
        is_named = not is_inner and part.prose <= _MAX_NAMED_SHARE * prose
        if (
            (is_named and _is_named(part, share, is_in_content=is_in_content))
            or (is_named and _is_form(part))
            or (not is_in_content and _is_menu(part, share, prose))
        ):
            unmarked.add(at)
    return unmarked


def _is_named(part: _PagePart, share: float, *, is_in_content: bool) -> bool:
    """Returns True if the names of a part and its text show that it is boilerplate.

    The id of an element is often the name of a section, for example `method.skip`. So only a short
    id of an element without a heading counts, and only for navigation and footers.
    """
    attributes = part.node.attributes
    if part.tag == "aside" or attributes.get("role") == "complementary":
        return share >= _MIN_NAMED_LINK_SHARE
    words = words_of(attributes, "class")
    if not (part.links or part.has_control or part.has_text_field):
        words -= (_NAVIGATION_NAMES | _PROMOTION_NAMES) - _NAMES_WITHOUT_LINKS
    if not words.isdisjoint(_PROMOTION_NAMES):
        limit = _MAX_FOOTER_LETTERS if is_in_content else _MAX_PROMOTION_LETTERS
        return share >= _MIN_NAMED_LINK_SHARE or part.prose <= limit
    id_words = words_of(attributes, "id")
    if len(id_words) <= _MAX_ID_WORDS and not id_words.isdisjoint(_ALL_NAMES):
        words |= set() if part.has_heading else id_words
    if not words.isdisjoint(_NOTE_NAMES):
        words -= _FOOTER_NAMES
    if words.isdisjoint(_ALL_NAMES):
        return False
    if is_in_content:
        limit = _MAX_INNER_LETTERS
    else:
        is_footer = not words.isdisjoint(_FOOTER_NAMES)
        limit = _MAX_FOOTER_LETTERS if is_footer else _MAX_NAVIGATION_LETTERS
    return share >= _MIN_NAMED_LINK_SHARE or part.prose <= limit


def _is_form(part: _PagePart) -> bool:
    """Returns True for a short form with fields for text, for example to write a comment.

    Some programs put the whole page into one form, so a long form is not left out.
    """
    is_short = part.tag == "form" and part.prose <= _MAX_PROMOTION_LETTERS
    return is_short and part.has_text_field


def _is_menu(part: _PagePart, share: float, prose: int) -> bool:
    """Returns True for a list of short links, or for a list of headlines next to longer text.

    `prose` is the number of letters of the page outside of links.
    """
    if part.links < _MIN_MENU_LINKS or share < _MENU_LINK_SHARE:
        return False
    is_short = part.link_letters <= _MAX_MENU_LINK_LETTERS * part.links
    return is_short or part.link_letters <= _MAX_HEADLINES_SHARE * prose


def _is_contents(part: _PagePart, share: float) -> bool:
    """Returns True for a list of links to the sections of the same page."""
    if part.links_to_page < max(part.links, 1):
        return False
    names = words_of(part.node.attributes, "class", "id")
    is_named = not names.isdisjoint(_CONTENTS_NAMES) or {"table", "of", "contents"} <= names
    if part.links < (1 if is_named else _MIN_MENU_LINKS):
        return False
    return share >= (_CONTENTS_LINK_SHARE if is_named else _MENU_LINK_SHARE)


def _outermost(parts: list[_PagePart], left_out: set[int]) -> list[int]:
    """Returns the parts of `left_out` that are not inside of another one, in document order."""
    outermost = []
    end = 0
    for at in sorted(left_out):
        if at >= end:
            outermost.append(at)
            end = parts[at].end
    return outermost


def _examples(
    parts: list[_PagePart], outermost: list[int], visibility: Visibility
) -> dict[int, str]:
    return {parts[at].node.mem_id: _start_of_text(parts[at].node, visibility) for at in outermost}


def _start_of_text(root: LexborNode, visibility: Visibility) -> str:
    """Returns the first characters of the visible text below `root`, on one line."""
    texts: list[str] = []
    chars = 0

    def enter(node: LexborNode) -> bool:
        nonlocal chars
        if node.is_text_node and chars < _MAX_EXAMPLE_CHARS:
            texts.append(node.text_content or "")
            chars += len(texts[-1])
        elif node.tag in BLOCKS:
            texts.append(" ")
        return chars < _MAX_EXAMPLE_CHARS

    walk(root, visibility.shows, enter, lambda _node: None)
    return " ".join("".join(texts).split())[:_MAX_EXAMPLE_CHARS]
