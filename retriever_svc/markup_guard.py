r"""Disables markup in a model's text that would make a viewer of the text load or link something.

A document can make a model write an image whose address contains other text of the prompt. A
viewer that renders Markdown loads the image, and so sends this text to the server of an attacker.
So images and HTML tags get a blank that turns them into plain text (`! [`, `< img`).

An address is a URL, or text that a viewer may turn into a link, like `www.example.org`. Addresses
may lead only to known hosts, which are the hosts that a passage or the question names. Any other
address gets a blank before the first character that differs from all known hosts
(`https:// evil.example`). The rules are:

- The text after two slashes or `www.` has to be a known host. Only a port may stand between the
  host and its path. Punctuation that ends a sentence or a bracket may follow too.
- The destination of a link, which is the text after `](` or `]:`, has to begin with `http://`,
  `https://` or `//` and a known host. Or the destination has to be relative, without a scheme or a
  host.
- A character reference must not be a number (`& #47;`), and must not name a character that
  occurs in schemes or in the slashes of addresses (`&sol ;`).

Some viewers accept blanks in a destination, and browsers delete tabs and line ends in addresses.
So the blank is put where it makes the URL invalid (WHATWG URL Standard). `@` gets a blank too,
because it would turn a known host before it into a user name.

If the host of an address is only the beginning of a known host (`example.or` and `example.org`), no
character differs. The guard notices this only at the end of the address. So this address stays
unchanged, and a blank follows it. Text between backticks is checked too, because viewers disagree
on where code begins and ends. But HTML tags between backticks stay unchanged.
"""

import re
from bisect import bisect_left
from collections.abc import Iterable
from enum import Enum, auto
from html.entities import html5
from string import ascii_letters, digits

_HOST = re.compile(r"(?://|(?<![a-z0-9])(?=www\.))([a-z0-9._-]+)", re.IGNORECASE | re.ASCII)
_MAX_HOST_CHARS = 253  # A name in the DNS has at most this many characters.
_HOST_CHARS = frozenset(ascii_letters + digits + "._-")
_PATH_STARTS = frozenset("/?#")
# These characters may follow the host of an address that has no path.
_CLOSING = frozenset("\"'`)]}>*|,;!.:~")

# Two patterns for the beginning of a link's destination. _UNDECIDED matches if the characters that
# follow decide to which host the link leads. _ELSEWHERE matches if the link has a scheme other than
# `http` or `https`, or if browsers read the beginning as the start of a host.
_UNDECIDED = re.compile(r"[a-z][a-z0-9+.-]{,31}|https?:/?|[/\\]", re.IGNORECASE | re.ASCII)
_ELSEWHERE = re.compile(
    r"[a-z][a-z0-9+.-]*[:\\]|https?:/?[^/\s]|/\\|\\[/\\]", re.IGNORECASE | re.ASCII
)
_DESTINATION_STARTS = ("](", "]:")

_TAG_STARTS = frozenset("/!?")

# The names of HTML character references that could hide a part of an address. For example, `sol` in
# `&sol;` is a slash. A reference could hide a part if its character occurs in schemes or is a slash
# or backslash, or if browsers delete the character from addresses.
_REFERENCES = frozenset(
    name.removesuffix(";") for name, text in html5.items() if text in set("+-.:/\\\t\n")
)
_MAX_REFERENCE_CHARS = max(map(len, _REFERENCES))


def hosts_in(texts: Iterable[str]) -> frozenset[str]:
    """Returns the hosts of all addresses in `texts`, in lower case."""
    hosts = (host.lower().rstrip("._-") for text in texts for host in _HOST.findall(text))
    return frozenset(host for host in hosts if 0 < len(host) <= _MAX_HOST_CHARS)


class MarkupGuard:
    """Reads a text character by character and says where a blank is needed to disable markup.

    The processor time for each character does not grow with the length of the text.
    """

    def __init__(self, hosts: frozenset[str]) -> None:
        self._last = ""
        self._references = _References()
        self._addresses = _Addresses(hosts)

    def breaks(self, char: str, *, in_code: bool) -> bool:
        """Reads `char`, the next character; returns True if a blank is needed before it.

        The blank disables an image, an HTML tag, an address or a character reference. `in_code` is
        True between backticks.
        """
        reference, address = self._references.breaks(char), self._addresses.breaks(char)
        markup = self._is_image(char) or (not in_code and self._is_tag(char))
        self._last = char
        return markup or reference or address

    def _is_image(self, char: str) -> bool:
        return self._last == "!" and char == "["

    def _is_tag(self, char: str) -> bool:
        return self._last == "<" and (char.isalpha() or char in _TAG_STARTS)


class _References:
    """Finds HTML character references that could hide a part of an address.

    These are all references by number (`&#47;`), and the references whose names are in _REFERENCES
    (`&sol;`).
    """

    def __init__(self) -> None:
        # The part of the reference's name that has been read; None outside a reference.
        self._name: str | None = None

    def breaks(self, char: str) -> bool:
        """Reads `char`; returns True if a blank is needed before it to disable a reference."""
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
    """The kind of text that is being read. TEXT is any text outside of an address."""

    TEXT = auto()
    DESTINATION = auto()  # The beginning of a link's destination, before a host.
    HOST = auto()
    PORT = auto()
    # Punctuation that follows an address without a path, for example `.` or `)`; see `_CLOSING`.
    CLOSING = auto()


class _Addresses:
    """Finds the character at which it becomes certain that an address leads to no known host."""

    def __init__(self, hosts: frozenset[str]) -> None:
        self._hosts = sorted(hosts)
        self._part = _Part.TEXT
        # The characters of the link's destination or of the host that have been read.
        self._read = ""
        self._last = ""
        self._after_slash = False
        # The last 4 characters of the word that was read last. With 4 characters, `_word` equals
        # `www` only if the whole word is `www`; with 3 characters, any word that ends with `www`
        # would be equal too.
        self._word = ""
        self._in_angles = False  # True if the link's destination began with `<`.
        # True in the destination of a link after `](`, until the path of the address begins. Before
        # the path, later characters may change where the link leads.
        self._is_open = False
        # True if a host was directly before `](` and no path has begun after it. In this case, an
        # `@` would turn the host into a user name.
        self._may_be_user = False
        # True if this link's destination began inside the destination of another link, before the
        # path of the other link's address. Later characters may change where this link leads, too.
        self._stays_open = False

    def breaks(self, char: str) -> bool:
        """Reads `char`; returns True if a blank is needed before it to disable an address."""
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
        is_user = (self._is_open and last == "@") or self._ends_user(char)
        leads_elsewhere = self._part is not _Part.TEXT and self._leads_elsewhere(char)
        if leads_elsewhere or is_user:
            self._word = char.lower() if char.isalnum() else ""
        return leads_elsewhere or is_user

    def _ends_user(self, char: str) -> bool:
        """Returns True if `char` is an `@` that turns the host before `](` into a user name.

        For example, `//host](@other` leads to `other`, with the user name `host`.
        """
        is_user = self._may_be_user and char == "@"
        if is_user or char.isspace() or char in _PATH_STARTS:
            self._may_be_user = False
        return is_user

    def _begin(self, part: _Part, read: str = "") -> None:
        self._part, self._read = part, read

    def _host_start(self, char: str) -> str | None:
        """Returns the part of a host that has been read, or None if no host begins with `char`.

        A host begins after two slashes, and then the returned part is "". A host also begins with
        "www.", and then the returned part is "www.". A backslash between these characters is
        ignored, because in Markdown a backslash may escape the next character.
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
        """Ends the address at white space; returns True if `char` needs a blank before it.

        In a link's destination, browsers continue an address after a tab or a line end. So a blank
        is needed before these characters.
        """
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
        return self._after_host(char)

    def _after_host(self, char: str) -> bool:
        """Reads the character after a known host, or after the host's port.

        Returns True if, because of this character, the address may lead to a host that is not
        known.
        """
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
        """Ends the check of an address.

        From here on, no character can make it lead to another host. Only an address inside the
        destination of another link is an exception; see `_stays_open`.
        """
        self._begin(_Part.TEXT)
        self._is_open = self._is_open and self._stays_open

    def _end(self) -> bool:
        """Ends the check of an address that leads to an unknown host.

        Returns True, because the address needs a blank.
        """
        self._begin(_Part.TEXT)
        return True

    def _begins_known(self) -> bool:
        return self._next_known().startswith(self._read.removesuffix("."))

    def _is_known(self) -> bool:
        return bool(self._read) and self._next_known() == self._read.removesuffix(".")

    def _next_known(self) -> str:
        """Returns the first known host, in sorted order, that is not before the read characters.

        The read characters (`_read`) are those of a host. If any known host begins with them, the
        returned host does. Returns "" if all known hosts are before the read characters.
        """
        at = bisect_left(self._hosts, self._read.removesuffix("."))
        return self._hosts[at] if at < len(self._hosts) else ""
