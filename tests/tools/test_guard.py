"""Which hosts and origins may reach the tool server."""

from __future__ import annotations

import pytest

from tollgate.config.settings import Server
from tollgate.tools.guard import allowed_hosts, refuse

SERVER = Server(
    bind=("0.0.0.0:8787", "10.0.0.5:8787", "unix:/run/t.sock"),
    base_url="https://Gateway.example",
    legacy_base_urls=("https://old.example/api/v1",),
)
HOSTS = allowed_hosts(SERVER)


def test_a_gateway_answers_to_its_addresses_and_to_this_machine():
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
        ({"host": "[::1"}, 421),
        ({"host": "["}, 421),
        ({}, 421),
    ],
    ids=[
        "its own",
        "any case and port",
        "this machine",
        "its own page",
        "a page that may",
        "another page",
        "a bracket alone",
        "a bracket left open",
        "a page of nowhere",
        "an empty one",
        "a user name behind a backslash",
        "a user name behind a mark",
        "rebound",
        "a user name",
        "an address left open",
        "a bracket for a host",
        "none",
    ],
)
def test_a_request_from_elsewhere_is_refused(headers, status):
    refused = refuse(headers, HOSTS, ("https://app.example",))
    assert (refused and refused[0]) == status
