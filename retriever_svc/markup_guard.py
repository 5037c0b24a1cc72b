r"""What a model's text may not contain: markup that a viewer would act on by itself.

A document can make a model write an image whose address carries what else is in the prompt; a
viewer that renders Markdown loads it, and a stranger's server has the text. So images and HTML
tags get a blank that makes them plain text (`! [`, `< img`), and so does every address that is
not plainly one of a host that a passage or the question names, where it first differs from those
(`https:// evil.example`):

- Whatever follows two slashes or `www.` has to be a known host, with no more than a port before
  its path, or the punctuation that ends a sentence or a bracket.
- The destination of a link, behind `](` or `]:`, has to begin with `http://`, `https://` or `//`
  and such a host, or to be relative, without a scheme or a host.
- Character references are no numbers (`& #47;`), and none of those that schemes and slashes are
  made of (`&sol ;`).

Some viewers accept blanks in a destination, and browsers delete tabs and line ends in addresses.
So the blank comes where a URL with it is invalid (WHATWG URL Standard), and `@` gets one as well.

An address that ends where a known host goes on cannot be told from it in time and stays, without
anything behind it. All this holds between backticks too, because viewers disagree on where code
begins and ends; HTML tags alone are left as they are there.
"""

import re
from bisect import bisect_left
from collections.abc import Iterable
from enum import Enum, auto
from html.entities import html5
from string import ascii_letters, digits

_HOST = re.compile(r"(?://|(?<![a-z0-9])(?=www\.))([a-z0-9._-]+)", re.IGNORECASE | re.ASCII)
_MAX_HOST_CHARS = 253  # Of a name in the DNS.
_HOST_CHARS = frozenset(ascii_letters + digits + "._-")
_PATH_STARTS = frozenset("/?#")
_CLOSING = frozenset("\"'`)]}>*|,;!.:~")  # May stand behind an address that has no path.

# The begin of a destination: not decided yet, and one that leads to a host or has a scheme.
_UNDECIDED = re.compile(r"[a-z][a-z0-9+.-]{,31}|https?:/?|[/\\]", re.IGNORECASE | re.ASCII)
_ELSEWHERE = re.compile(
    r"[a-z][a-z0-9+.-]*[:\\]|https?:/?[^/\s]|/\\|\\[/\\]", re.IGNORECASE | re.ASCII
)
_DESTINATION_STARTS = ("](", "]:")

_TAG_STARTS = frozenset("/!?")

# Names of characters that schemes and slashes are made of, or that browsers delete there.
_REFERENCES = frozenset(
    name.removesuffix(";") for name, text in html5.items() if text in set("+-.:/\\\t\n")
)
_MAX_REFERENCE_CHARS = max(map(len, _REFERENCES))


def hosts_in(texts: Iterable[str]) -> frozenset[str]:
    """Returns the hosts of all addresses in `texts`, in lower case."""
    found = (host.lower().rstrip("._-") for text in texts for host in _HOST.findall(text))
    return frozenset(host for host in found if 0 < len(host) <= _MAX_HOST_CHARS)


class MarkupGuard:
    """Reads a text character by character and says where a blank has to come.

    A character takes a time that does not depend on the text before it.
    """

    def __init__(self, hosts: frozenset[str]) -> None:
        self._last = ""
        self._references = _References()
        self._addresses = _Addresses(hosts)

    def breaks(self, char: str, *, in_code: bool) -> bool:
        """Returns whether a blank has to come before `char`, the next of the text."""
        reference, address = self._references.breaks(char), self._addresses.breaks(char)
        markup = self._is_image(char) or (not in_code and self._is_tag(char))
        self._last = char
        return markup or reference or address

    def _is_image(self, char: str) -> bool:
        return self._last == "!" and char == "["

    def _is_tag(self, char: str) -> bool:
        return self._last == "<" and (char.isalpha() or char in _TAG_STARTS)


class _References:
    """Finds character references that are numbers, or the names of what addresses are made of."""

    def __init__(self) -> None:
        self._name: str | None = None  # What has been read of one; None outside.

    def breaks(self, char: str) -> bool:
        """Returns whether what has been read and `char` make one."""
        name, self._name = self._name, None
        if char == "&":
            self._name = ""
        elif name is not None:
            if char == "#" and not name:
                return True
            if char == ";":
                return name in _REFERENCES
            if char.isascii() and char.isalnum() and len(name) < _MAX_REFERENCE_CHARS:
                self._name = name + char
        return False


class _Part(Enum):
    """Which part of the text is being read."""

    TEXT = auto()
    DESTINATION = auto()  # Of a link, before its host is reached.
    HOST = auto()
    PORT = auto()
    CLOSING = auto()  # Punctuation behind a host.


class _Addresses:
    """Finds where an address leads elsewhere than to a known host."""

    def __init__(self, hosts: frozenset[str]) -> None:
        self._hosts = sorted(hosts)
        self._part = _Part.TEXT
        self._read = ""  # Of the destination or the host.
        self._last = ""
        self._after_slash = False
        self._word = ""  # The end of the word before; `www` only if it is all of it.
        self._in_angles = False  # The destination began with `<`.
        self._is_open = False  # A destination behind `](` has not reached a path, and may go on.
        self._may_be_user = False  # A host and `](` came before, and no path yet.
        self._stays_open = False  # This destination began within such a one.

    def breaks(self, char: str) -> bool:
        """Returns whether a blank has to come before `char`, the next of the text."""
        host_start = self._host_start(char)
        last, self._last = self._last, char
        if last + char in _DESTINATION_STARTS:
            self._may_be_user = self._part is _Part.CLOSING
            self._begin(_Part.DESTINATION)
            self._in_angles, self._stays_open = False, self._is_open
            self._is_open = self._is_open or char == "("
            return False
        if last == char == "\n":
            self._part, self._is_open = _Part.TEXT, False
        if host_start is not None and self._part in (_Part.TEXT, _Part.DESTINATION):
            self._begin(_Part.HOST, host_start)
            return False
        user = (self._is_open and last == "@") or self._ends_user(char)
        found = self._part is not _Part.TEXT and self._leads_elsewhere(char)
        if found or user:
            self._word = char.lower() if char.isalnum() else ""
        return found or user

    def _ends_user(self, char: str) -> bool:
        """Whether `char` makes a host before `](` the name of a user, as in `//host](@other`."""
        found = self._may_be_user and char == "@"
        if found or char.isspace() or char in _PATH_STARTS:
            self._may_be_user = False
        return found

    def _begin(self, part: _Part, read: str = "") -> None:
        self._part, self._read = part, read

    def _host_start(self, char: str) -> str | None:
        """What a host has so far if `char` begins one, else None.

        A backslash changes nothing: in Markdown it may escape what comes next.
        """
        if char == "\\":
            self._word = self._word if self._word == "www" else ""
            return None
        after_slash, word = self._after_slash, self._word
        self._after_slash = char == "/"
        self._word = (word + char.lower())[-4:] if char.isalnum() else ""
        if after_slash and char == "/":
            return ""
        return "www." if word == "www" and char == "." else None

    def _leads_elsewhere(self, char: str) -> bool:
        if self._part is _Part.DESTINATION:
            return self._in_destination(char)
        if char.isspace():
            return self._end_at_blank(char)
        if self._part is _Part.CLOSING:
            return self._in_closing(char)
        if self._part is _Part.PORT and char.isascii() and char.isdigit():
            return False
        return self._in_host(char)

    def _in_destination(self, char: str) -> bool:
        if not self._read and (char.isspace() or (char == "<" and not self._in_angles)):
            self._in_angles = self._in_angles or char == "<"
            return False
        if char.isspace():
            return self._end_at_blank(char)
        read = self._read + char
        if _UNDECIDED.fullmatch(read):
            self._read = read
            return False
        if _ELSEWHERE.fullmatch(read):
            return self._end()
        self._settle()
        return False

    def _end_at_blank(self, char: str) -> bool:
        """Ends the address. Browsers go on behind a tab or line end, so it needs a blank too."""
        self._begin(_Part.TEXT)
        return self._is_open and char != " "

    def _in_host(self, char: str) -> bool:
        host = self._read
        if not host and char in "/\\":
            return False
        if self._part is _Part.HOST and char in _HOST_CHARS:
            self._read = host + char.lower()
            return False if self._begins_known() else self._end()
        if not self._is_known():
            self._begin(_Part.TEXT)
            return bool(host) or char not in _PATH_STARTS
        return self._behind_host(char)

    def _behind_host(self, char: str) -> bool:
        """Reads what follows a known host, and its port if there is one."""
        if char in _PATH_STARTS or (char == ")" and self._is_open and not self._in_angles):
            self._settle()
        elif char == ":" and self._part is _Part.HOST:
            self._part = _Part.PORT
        elif char in _CLOSING:
            self._part = _Part.CLOSING
        else:
            return self._end()
        return False

    def _in_closing(self, char: str) -> bool:
        if char in _CLOSING:
            return False
        self._begin(_Part.TEXT)
        return char not in _PATH_STARTS

    def _settle(self) -> None:
        """What follows can no longer change where the address leads."""
        self._begin(_Part.TEXT)
        self._is_open = self._is_open and self._stays_open

    def _end(self) -> bool:
        """Ends an address that leads elsewhere."""
        self._begin(_Part.TEXT)
        return True

    def _begins_known(self) -> bool:
        return self._next_known().startswith(self._read.removesuffix("."))

    def _is_known(self) -> bool:
        return bool(self._read) and self._next_known() == self._read.removesuffix(".")

    def _next_known(self) -> str:
        """The first of the known hosts, in order, that does not come before the one read."""
        at = bisect_left(self._hosts, self._read.removesuffix("."))
        return self._hosts[at] if at < len(self._hosts) else ""
