"""`fields_of` reads the fields of a dataclass from a block, by their types."""

import dataclasses

import pytest

from tollgate.config import model, pricing, settings
from tollgate.config.fields import _readers, fields_of
from tollgate.config.gateway_schema import gateway_schema
from tollgate.config.load import read_text
from tollgate.config.provider_schema import provider_schema

PROVIDER = provider_schema()
GATEWAY = gateway_schema()["properties"]
BLOCKS = {
    settings.Server: (GATEWAY["server"], {"trusted_proxies"}),
    settings.Timeouts: (GATEWAY["timeouts"], set()),
    settings.Retry: (GATEWAY["retry"], set()),
    settings.Store: (GATEWAY["store"]["anyOf"][1], set()),
    settings.Fetch: (GATEWAY["fetch"], set()),
    settings.Dashboard: (GATEWAY["dashboard"], set()),
    model.Provider: (PROVIDER, {"auth", "policies", "models"}),
    model.Policy: (PROVIDER["properties"]["policies"]["items"], set()),
    model.Endpoint: (PROVIDER["$defs"]["endpoint"], {"url"}),
    model.Model: (PROVIDER["$defs"]["model"], {"price", "input_schema"}),
    pricing.Pricing: (PROVIDER["$defs"]["price"], {"volumes", "service_tiers", "windows", "multipliers"}),
    pricing.Volume: (PROVIDER["$defs"]["price"]["properties"]["volumes"]["items"], set()),
    pricing.PriceWindow: (PROVIDER["$defs"]["price"]["properties"]["windows"]["items"], {"prices"}),
}
"""For each dataclass, the schema of its block, and the keys whose values have a reader of their own."""


@pytest.mark.parametrize("kind", BLOCKS, ids=lambda kind: kind.__name__)
def test_a_key_is_read_by_the_type_of_its_field(kind):
    schema, ruled = BLOCKS[kind]
    keys = schema["properties"].keys() & {each.name for each in dataclasses.fields(kind)}
    assert keys - _readers(kind).keys() == ruled


def test_absent_and_null_fields_keep_their_defaults():
    root = read_text("batch: 8\nheaders: {a: b}\npoll: null\nmodels: one\nuse: less\n", "a.yaml").root
    found = fields_of(model.Endpoint, root)
    assert found == {"batch": 8, "headers": {"a": root.entries["headers"].entries["a"]}, "models": ("one",)}
    assert fields_of(model.Endpoint, None) == {}
