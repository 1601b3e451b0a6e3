"""Clients under test, on both event loops that a gateway may use."""

from __future__ import annotations

import pytest
import uvloop
from authority import Authority

from support.patient import PatientLoop
from tollgate.upstream import Client
from tollgate.upstream.http import HttpTransport


def pytest_asyncio_loop_factories(config: pytest.Config, item: pytest.Item):
    return {"asyncio": PatientLoop, "uvloop": uvloop.new_event_loop}


@pytest.fixture
async def client():
    client = Client(environ={})
    yield client
    await client.close()


@pytest.fixture
async def make_client():
    made: list[Client] = []

    def make(**options) -> Client:
        made.append(Client(transport=HttpTransport(**{"environ": {}, **options})))
        return made[-1]

    yield make
    for client in made:
        await client.close()


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))
