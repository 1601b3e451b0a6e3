"""The counters: what they say, and that nobody outside can make them grow."""

import json

import pytest

from conformance.upstreams import ASKS, PATHS, events, provider, whole
from support.inprocess import inprocess, replying
from tollgate.metrics import Metrics


def test_an_upstream_cannot_make_the_list_of_event_names_grow():
    metrics = Metrics()
    for number in range(1000):
        metrics.unmatched("acme", {f"event {number} {'x' * 500}": 2})
    assert len(metrics.unmatched_events) <= 201 and sum(metrics.unmatched_events.values()) == 2000
    assert all(len(name) <= 100 for name in metrics.unmatched_events)


def test_a_label_cannot_break_out_of_its_line():
    metrics = Metrics()
    metrics.unmatched("acme", {'a"} 1\nevil_total{x="\\': 1})
    [line] = [line for line in metrics.render().splitlines() if "evil" in line]
    assert line == 'tollgate_unmatched_stream_events_total{event="acme a\\"} 1\\nevil_total{x=\\"\\\\"} 1'


@pytest.mark.parametrize("client", ["chat", "responses"])
async def test_events_that_no_rule_reads_are_counted(tmp_path, client):
    odd = b'event: surprise\ndata: {"type": "surprise"}\n\n'
    blocks = events("messages")
    app = replying(200, blocks=[*blocks[:2], odd, odd, *blocks[2:]], headers={"content-type": "text/event-stream"})
    async with inprocess(
        tmp_path, providers={"acme": provider("app://acme/v1", "messages")}, apps={"acme": app}
    ) as here:
        asked = {
            "model": "acme/one",
            "stream": True,
            **({"input": "hi"} if client == "responses" else {"messages": [{"role": "user", "content": "hi"}]}),
        }
        assert (await here.post(PATHS[client], asked)).status_code == 200
        said = (await here.get("/metrics")).text
        assert 'tollgate_unmatched_stream_events_total{event="messages surprise"} 2' in said


async def test_what_a_provider_was_paid_for_is_counted(tmp_path):
    answer = replying(body=json.dumps(whole("chat", prompt_tokens=10, completion_tokens=4, total_tokens=14)).encode())
    async with inprocess(
        tmp_path, providers={"acme": provider("app://acme/v1", "chat")}, apps={"acme": answer}
    ) as here:
        for _ in range(2):
            assert (await here.post(PATHS["chat"], ASKS["chat"])).status_code == 200
        said = (await here.get("/metrics")).text
        assert 'tollgate_tokens_total{provider="acme",bucket="prompt"} 20' in said
        assert 'tollgate_tokens_total{provider="acme",bucket="completion"} 8' in said
        assert 'tollgate_cost_usd_total{provider="acme"} 0.000036' in said


async def test_every_metric_says_what_it_means(tmp_path):
    async with inprocess(tmp_path) as here:
        text = (await here.get("/metrics")).text
    helps = [line.removeprefix("# HELP ").partition(" ") for line in text.splitlines() if line.startswith("# HELP ")]
    assert {"tollgate_ready", "tollgate_usage_published", "tollgate_alarms", "tollgate_routes_cooling"} < {
        name for name, _, _ in helps
    }
    assert all(about for _, _, about in helps) and len({about for _, _, about in helps}) == len(helps)
