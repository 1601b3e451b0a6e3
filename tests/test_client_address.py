"""The client's address is the one that our own proxies saw, whatever the client sends; and network membership."""

from __future__ import annotations

from ipaddress import ip_network

import pytest

from tollgate.client_address import address_of, client_address, is_among

OURS = tuple(map(ip_network, ("127.0.0.1", "10.0.0.0/8", "2001:db8::/32")))


@pytest.mark.parametrize(
    ("peer", "forwarded", "proxies", "address"),
    [
        pytest.param("127.0.0.1", ["203.0.113.7"], (), "127.0.0.1", id="no trusted proxy: the header is ignored"),
        pytest.param("127.0.0.1", ["203.0.113.7"], OURS, "203.0.113.7", id="a trusted proxy's header"),
        pytest.param("203.0.113.9", ["198.51.100.1"], OURS, "203.0.113.9", id="an untrusted peer's header"),
        pytest.param("127.0.0.1", ["6.6.6.6, 203.0.113.7"], OURS, "203.0.113.7", id="an entry forged by the client"),
        pytest.param("127.0.0.1", ["6.6.6.6", "203.0.113.7"], OURS, "203.0.113.7", id="a forged separate header"),
        pytest.param(
            "127.0.0.1", ["127.0.0.1, 203.0.113.7"], OURS, "203.0.113.7", id="a forged entry with a proxy's address"
        ),
        pytest.param("127.0.0.1", ["6.6.6.6, 203.0.113.7, 10.1.2.3"], OURS, "203.0.113.7", id="two trusted proxies"),
        pytest.param("127.0.0.1", ["10.0.0.5, 10.1.2.3"], OURS, "10.0.0.5", id="a client inside the network"),
        pytest.param("127.0.0.1", [], OURS, "127.0.0.1", id="no header"),
        pytest.param(
            "127.0.0.1",
            ["203.0.113.7, unknown"],
            OURS,
            "127.0.0.1",
            id="an entry the trusted proxy does not know: earlier entries are not trusted",
        ),
        pytest.param("127.0.0.1", ["203.0.113.7:4711"], OURS, "203.0.113.7", id="with a port"),
        pytest.param("::ffff:127.0.0.1", ["::ffff:203.0.113.7"], OURS, "203.0.113.7", id="v4 in v6 form"),
        pytest.param("2001:db8::1", ["[2001:470::7]:4711"], OURS, "2001:470::7", id="v6 with a port"),
        pytest.param("", ["203.0.113.7"], OURS, "", id="a unix socket that is not trusted"),
        pytest.param("", ["6.6.6.6, 203.0.113.7"], ("unix",), "203.0.113.7", id="a trusted unix socket"),
        pytest.param(
            "203.0.113.9", ["6.6.6.6"], ("unix",), "203.0.113.9", id="a TCP peer beside a trusted unix socket"
        ),
    ],
)
def test_the_client_address_is_the_last_one_that_no_trusted_proxy_has(peer, forwarded, proxies, address):
    assert client_address(peer, forwarded, proxies) == address


def test_the_address_is_read_from_an_asgi_scope():
    scope = {
        "client": ("127.0.0.1", 4711),
        "headers": [(b"x-forwarded-for", b"6.6.6.6"), (b"accept", b"*/*"), (b"x-forwarded-for", b"203.0.113.7")],
    }
    assert address_of(scope, OURS) == "203.0.113.7"
    assert address_of(scope, ()) == "127.0.0.1"
    assert address_of({"client": None, "headers": []}, OURS) == "", "a unix socket"


@pytest.mark.parametrize(
    ("address", "listed", "among"),
    [
        pytest.param("192.0.2.1", ("192.0.2.1",), True, id="an address"),
        pytest.param("192.0.2.2", ("192.0.2.1",), False, id="its neighbour"),
        pytest.param("10.255.0.1", ("192.0.2.1", "10.0.0.0/8"), True, id="a network"),
        pytest.param("11.0.0.0", ("10.0.0.0/8", "192.0.2.0/24"), False, id="right behind a network"),
        pytest.param("::ffff:10.1.2.3", ("10.0.0.0/8",), True, id="v4 in v6 form, as a dual-stack socket reports it"),
        pytest.param("10.1.2.3", ("::/0",), False, id="v4 is not in all of v6"),
        pytest.param("2001:db8::7", ("0.0.0.0/0",), False, id="v6 is not in all of v4"),
        pytest.param("2001:db8:0:1::7", ("2001:db8::/32",), True, id="v6"),
        pytest.param("2001:db9::7", ("2001:db8::/32",), False, id="another v6"),
        pytest.param("fe80::1%eth0", ("fe80::/10",), True, id="v6 with a zone"),
        pytest.param("255.255.255.255", ("0.0.0.0/0",), True, id="all of v4"),
        pytest.param("", ("0.0.0.0/0", "::/0"), False, id="a unix socket"),
        pytest.param("unknown", ("0.0.0.0/0",), False, id="not an address"),
        pytest.param("192.0.2.1", (), False, id="an empty list"),
    ],
)
def test_an_address_is_matched_against_a_list(address, listed, among):
    assert is_among(address, listed) is among
