"""Two gateways that share a PostgreSQL database."""

from __future__ import annotations

import json
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import anthropic
import openai
import pytest

from support.inprocess import write_config
from support.running import Running, start_gateway
from support.usage_files import usage_rows
from support.waiting import wait_until


@pytest.fixture
def two_gateways(address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Running, Running]]:
    """Gateways of one configuration folder, with different instance names."""
    monkeypatch.setenv("TOLLGATE_TEST_DB", address)
    write_config(tmp_path, store="url: $secret.TOLLGATE_TEST_DB, publish_seconds: 0.2")
    first = start_gateway(tmp_path, extra=("--instance", "eu-1"))
    second = start_gateway(tmp_path, extra=("--instance", "eu-2"))
    yield first, second
    for each in (first, second):
        if each.process.poll() is None:
            assert each.stop() == 0


def test_gateways_share_keys_balances_and_revocations_and_survive_a_killed_one(
    two_gateways: tuple[Running, Running], tmp_path: Path
) -> None:
    first, second = two_gateways
    assert first.key
    for running in two_gateways:
        completion = openai.OpenAI(base_url=running.url, api_key=first.key).chat.completions.create(
            model="sandbox/echo", messages=[{"role": "user", "content": "Hello"}]
        )
        assert completion.choices[0].message.content == "You said: Hello"
        with anthropic.Anthropic(base_url=running.base, api_key=first.key).messages.stream(
            model="sandbox/echo", max_tokens=100, messages=[{"role": "user", "content": "Hello"}]
        ) as stream:
            assert stream.get_final_text() == "You said: Hello"

    wait_until(lambda: len(usage_rows(tmp_path)) == 4)
    client = openai.OpenAI(base_url=first.url, api_key=first.key, max_retries=0)
    slow = client.chat.completions.create(
        model="sandbox/echo", messages=[{"role": "user", "content": "[[pace=200ms]] [[tokens=400]]"}], stream=True
    )
    next(iter(slow))
    assert _held(second) > 0
    first.kill()
    wait_until(lambda: _held(second) == 0)  # released by the surviving gateway

    key = json.loads(second.cli("keys", "list", "--json"))[0]["id"]
    second.cli("keys", "revoke", key, "--yes")
    wait_until(lambda: _refused(second, first.key))
    assert second.stop() == 0
    assert {path.name[2:] for path in tmp_path.glob("usage/*/*.duckdb")} == {"-eu-1.duckdb", "-eu-2.duckdb"}


def _held(running: Running) -> Decimal:
    return Decimal(json.loads(running.cli("accounts", "list", "--json"))[0]["held"])


def _refused(running: Running, key: str) -> bool:
    try:
        openai.OpenAI(base_url=running.url, api_key=key).models.list()
    except openai.AuthenticationError:
        return True
    return False
