"""Sockets listen at addresses that users choose."""

from contextlib import closing
from socket import create_connection

import pytest

from hrag.errors import ServiceUnavailable
from hrag.host.listener import listen


@pytest.mark.parametrize("address", ["127.0.0.1:0", "localhost:0"])
def test_a_socket_listens_at_a_free_port(address):
    with listen(address) as listening:
        create_connection(listening.getsockname()[:2]).close()


def test_an_address_in_use_or_of_another_machine_is_refused_with_the_reason():
    with closing(listen("127.0.0.1:0")) as listening:
        in_use = f"127.0.0.1:{listening.getsockname()[1]}"
        with pytest.raises(ServiceUnavailable, match=f"on {in_use}: Address already in use"):
            listen(in_use)
    with pytest.raises(ServiceUnavailable, match="Cannot assign"):
        listen("192.0.2.1:0")
