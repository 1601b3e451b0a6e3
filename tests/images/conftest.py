"""A gateway with providers of image jobs."""

import pytest

from support.image_provider import Provider, close_services, make_offer, open_services


@pytest.fixture
async def gateway(tmp_path):
    opened = []

    async def start(answer, *offers, credits="10", folder=tmp_path, apps=None, **settings):
        provider = Provider(answer)
        services, (key, _) = await open_services(
            folder, *(offers or (make_offer(),)), apps=apps or {"acme": provider}, credits=credits, **settings
        )
        opened.append(services)
        return services, key, provider

    yield start
    for services in opened:
        await close_services(services)
