"""The counters: their values and labels, and their bounds."""

import json

import pytest

from conformance.upstreams import ASKS, PATHS, events, provider, whole
from support.inprocess import inprocess, replying
from tollgate.metrics import Metrics


def test_event_names_of_an_upstream_are_bounded_in_number_and_length():
    metrics = Metrics()
    for number in range(1000):
        metrics.count_unmatched("acme", {f"event {number} {'x' * 500}": 2})
    assert len(metrics.unmatched_events) <= 201 and sum(metrics.unmatched_events.values()) == 2000
    assert all(len(name) <= 100 for name in metrics.unmatched_events)


def test_label_values_are_escaped():
    metrics = Metrics()
    metrics.count_unmatched("acme", {'a"} 1\nevil_total{x="\\': 1})
    [line] = [line for line in metrics.render().splitlines() if "evil" in line]
    assert line == 'tollgate_unmatched_stream_events_total{event="acme a\\"} 1\\nevil_total{x=\\"\\\\"} 1'


@pytest.mark.parametrize("client", ["chat", "responses"])
async def test_stream_events_without_a_rule_are_counted(tmp_path, client):
    odd = b'event: surprise\ndata: {"type": "surprise"}\n\n'
    blocks = events("messages")
    upstream = replying(200, blocks=[*blocks[:2], odd, odd, *blocks[2:]], headers={"content-type": "text/event-stream"})
    async with inprocess(
        tmp_path, providers={"acme": provider("app://acme/v1", "messages")}, apps={"acme": upstream}
    ) as app:
        body = {
            "model": "acme/one",
            "stream": True,
            **({"input": "hi"} if client == "responses" else {"messages": [{"role": "user", "content": "hi"}]}),
        }
        assert (await app.post(PATHS[client], body)).status_code == 200
        text = (await app.get("/metrics")).text
        assert 'tollgate_unmatched_stream_events_total{event="messages surprise"} 2' in text


async def test_tokens_and_cost_are_counted_by_provider(tmp_path):
    counts = {"prompt_tokens": 10, "completion_tokens": 4, "total_tokens": 14}
    parts = {"prompt_tokens_details": {"cached_tokens": 3}, "completion_tokens_details": {"reasoning_tokens": 1}}
    answer = replying(body=json.dumps(whole("chat", **counts, **parts)).encode())
    async with inprocess(tmp_path, providers={"acme": provider("app://acme/v1", "chat")}, apps={"acme": answer}) as app:
        for _ in range(2):
            assert (await app.post(PATHS["chat"], ASKS["chat"])).status_code == 200
        text = (await app.get("/metrics")).text
        assert 'tollgate_tokens_total{provider="acme",bucket="prompt"} 20' in text
        assert 'tollgate_tokens_total{provider="acme",bucket="completion"} 8' in text
        assert 'tollgate_cost_usd_total{provider="acme"} 0.000036' in text


async def test_every_metric_has_its_own_help_text(tmp_path):
    async with inprocess(tmp_path) as app:
        text = (await app.get("/metrics")).text
    helps = [line.removeprefix("# HELP ").partition(" ") for line in text.splitlines() if line.startswith("# HELP ")]
    assert {"tollgate_ready", "tollgate_usage_published", "tollgate_alarms", "tollgate_routes_cooling"} < {
        name for name, _, _ in helps
    }
    assert all(about for _, _, about in helps) and len({about for _, _, about in helps}) == len(helps)
