"""Creates listening TCP sockets."""

from socket import AF_INET, AF_INET6, create_server, socket

from hrag.values.errors import ServiceUnavailable

_BACKLOG = 1024


def listen(address: str) -> socket:
    """Returns a socket that listens at `host:port`; with port 0 the system chooses a free port.

    Raises ServiceUnavailable, which contains the reason, if the address cannot be bound.
    """
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    family = AF_INET6 if ":" in host else AF_INET
    try:
        return create_server((host, int(port)), family=family, backlog=_BACKLOG)
    except OSError as error:
        raise ServiceUnavailable(f"cannot listen on {address}: {error.strerror}") from error
