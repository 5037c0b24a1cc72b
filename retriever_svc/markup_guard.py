"""What a model's text may not contain: markup that a viewer would act on by itself.

A document can make a model write an image whose address carries what else is in the prompt; a
viewer that renders Markdown loads it, and a stranger's server has the text. So images and HTML
tags get a blank that makes them plain text (`! [`, `< img`), and so does the address of any host
that neither a passage nor the question names, where it first differs from those that they do
(`https:// evil.example`). Between backticks only images do, because viewers disagree on where
code ends; HTML and addresses there are left as they are.
"""

import re
from collections.abc import Iterable

_HOST = re.compile(r"//([a-z0-9._-]+)", re.IGNORECASE)
_HOST_CHARS = frozenset("abcdefghijklmnopqrstuvwxyz0123456789._-")
_PORT_CHARS = frozenset(":0123456789")
_AUTHORITY_ENDS = frozenset("/\\?#()<>[]{}\"'`|*,;!")  # And white space.
_TAG_STARTS = frozenset("/!?")


def hosts_in(texts: Iterable[str]) -> frozenset[str]:
    """Returns the hosts of all addresses in `texts`, in lower case."""
    return frozenset(host.lower() for text in texts for host in _HOST.findall(text))


class MarkupGuard:
    """Reads a text character by character and says where a blank has to come."""

    def __init__(self, hosts: frozenset[str]) -> None:
        self._hosts = hosts
        self._last = ""
        self._host: str | None = None  # What has been read of an address's host; None outside.
        self._in_port = False

    def breaks(self, char: str, *, in_code: bool) -> bool:
        """Returns whether a blank has to come before `char`, the next of the text."""
        found = self._is_image(char) or (not in_code and (self._is_tag(char) or self._leads(char)))
        if found or in_code:
            self._host = None
        elif self._last == "/" and char in "/\\":
            self._host, self._in_port = "", False
        self._last = char
        return found

    def _is_image(self, char: str) -> bool:
        return self._last == "!" and char == "["

    def _is_tag(self, char: str) -> bool:
        return self._last == "<" and (char.isalpha() or char in _TAG_STARTS)

    def _leads(self, char: str) -> bool:
        """Whether an address goes on to a host that is not known; reads on in it."""
        if self._host is None:
            return False
        host = self._host
        if char in _AUTHORITY_ENDS or char.isspace():
            self._host = None
            return bool(host) and not char.isspace() and not self._is_known(host)
        if self._in_port or (char == ":" and self._is_known(host)):
            self._in_port = True
            return char not in _PORT_CHARS
        self._host = host + char.lower()
        if char.lower() not in _HOST_CHARS:
            return True
        return not any(known.startswith(self._host.removesuffix(".")) for known in self._hosts)

    def _is_known(self, host: str) -> bool:
        return host.rstrip(".") in self._hosts
