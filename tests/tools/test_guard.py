"""Which hosts and origins may reach the tool server."""

from __future__ import annotations

import pytest

from tollgate.config.model import Server
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
        ({"host": "evil.example"}, 421),
        ({}, 421),
    ],
    ids=[
        "its own",
        "any case and port",
        "this machine",
        "its own page",
        "a page that may",
        "another page",
        "rebound",
        "none",
    ],
)
def test_a_request_from_elsewhere_is_refused(headers, status):
    refused = refuse(headers, HOSTS, ("https://app.example",))
    assert (refused and refused[0]) == status
