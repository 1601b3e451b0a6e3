"""Which hosts and origins may reach the tool server."""

from __future__ import annotations

import pytest

from tollgate.config.settings import Server
from tollgate.tools.guard import HostRefused, OriginRefused, allowed_hosts, require_own

SERVER = Server(
    bind=("0.0.0.0:8787", "10.0.0.5:8787", "unix:/run/t.sock"),
    base_url="https://Gateway.example",
    legacy_base_urls=("https://old.example/api/v1",),
)
HOSTS = allowed_hosts(SERVER)


def test_a_gateway_allows_its_addresses_and_loopback():
    assert {"gateway.example", "old.example", "10.0.0.5", "localhost", "127.0.0.1", "::1"} == HOSTS


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"host": "gateway.example"}, None),
        ({"host": "GATEWAY.example:8443"}, None),
        ({"host": "[::1]:8787"}, None),
        ({"host": "gateway.example", "origin": "https://gateway.example"}, None),
        ({"host": "gateway.example", "origin": "https://app.example"}, None),
        ({"host": "gateway.example", "origin": "https://evil.example"}, 403),
        ({"host": "gateway.example", "origin": "http://["}, 403),
        ({"host": "gateway.example", "origin": "http://[::1"}, 403),
        ({"host": "gateway.example", "origin": "null"}, 403),
        ({"host": "gateway.example", "origin": ""}, 403),
        ({"host": "gateway.example", "origin": "https://evil.example\\@gateway.example"}, 403),
        ({"host": "gateway.example", "origin": "https://evil.example#@gateway.example"}, 403),
        ({"host": "evil.example"}, 421),
        ({"host": "evil.example@gateway.example"}, 421),
        ({"host": "gateway.example:port"}, 421),
        ({"host": "[::1"}, 421),
        ({"host": "["}, 421),
        ({}, 421),
    ],
    ids=[
        "its own host",
        "any case and port",
        "loopback",
        "its own origin",
        "an allowed origin",
        "another origin",
        "a bracket as origin",
        "an unclosed bracket in the origin",
        "the origin null",
        "an empty origin",
        "a user name after a backslash",
        "a user name after a number sign",
        "another host",
        "a user name in the host",
        "a port that is no number",
        "an unclosed bracket in the host",
        "a bracket as host",
        "no host",
    ],
)
def test_requests_of_other_hosts_and_origins_are_rejected(headers, status):
    rejected = None
    try:
        require_own(headers, HOSTS, ("https://app.example",))
    except (HostRefused, OriginRefused) as error:
        rejected = error.status
    assert rejected == status
