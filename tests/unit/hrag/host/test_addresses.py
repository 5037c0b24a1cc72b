"""Addresses are recognised as local to this machine or as remote."""

import pytest

from hrag.host.addresses import dial_address, is_loopback


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1:50051",
        "127.1.2.3:0",
        "localhost:1",
        "localhost",
        "[::1]:50051",
        "unix:/run/hrag/indexer",
        "unix:///run/hrag",
        "unix-abstract:hrag",
    ],
)
def test_loopback_and_unix_sockets_are_local(address):
    assert is_loopback(address)


@pytest.mark.parametrize(
    "address",
    [
        "",
        "0.0.0.0:50051",
        "[::]:50051",
        "10.0.0.7:1",
        "localhost.evil.com:1",
        "127.0.0.1.evil.com:1",
        "127.evil.com:1",
        "127.0.0.1@evil.com:1",
        "localhost:1@evil.com",
        "evil.com/127.0.0.1:1",
        "::1:5005",
        "[::1%eth0]:1",
        "[::10]:1",
        "dns:///localhost:1",
        "dns://evil.com/localhost:1",
        "ipv4:10.0.0.7:1,127.0.0.1:1",
        "localhost:1\n",
        "LOCALHOST.:1",
    ],
)
def test_any_other_address_counts_as_remote(address):
    assert not is_loopback(address)


@pytest.mark.parametrize(
    ("listening", "expected"),
    [
        ("0.0.0.0:1", "127.0.0.1:1"),
        ("[::]:1", "[::1]:1"),
        (":1", "127.0.0.1:1"),
        ("host:1", "host:1"),
        ("host", "host"),
        ("unix:/run/hrag", "unix:/run/hrag"),
    ],
)
def test_wildcard_addresses_are_dialled_on_loopback(listening, expected):
    assert dial_address(listening) == expected
