"""Two gateways on one PostgreSQL database, as clients and operators meet them."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path

import anthropic
import openai
import pytest

from support.inprocess import write_config
from support.running import Running, start_gateway
from support.usage_files import usage_rows


@pytest.fixture
def two(address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Running, Running]]:
    """Gateways of one folder with configuration, each with a name of its own."""
    monkeypatch.setenv("TOLLGATE_TEST_DB", address)
    write_config(tmp_path, store="url: $secret.TOLLGATE_TEST_DB, publish_seconds: 0.2")
    first = start_gateway(tmp_path, extra=("--instance", "eu-1"))
    second = start_gateway(tmp_path, extra=("--instance", "eu-2"))
    yield first, second
    for each in (first, second):
        if each.process.poll() is None:
            assert each.stop() == 0


def test_one_key_one_balance_and_one_death(two: tuple[Running, Running], tmp_path: Path) -> None:
    first, second = two
    assert first.key
    for running in two:
        said = openai.OpenAI(base_url=running.url, api_key=first.key).chat.completions.create(
            model="sandbox/echo", messages=[{"role": "user", "content": "Hello"}]
        )
        assert said.choices[0].message.content == "You said: Hello"
        with anthropic.Anthropic(base_url=running.base, api_key=first.key).messages.stream(
            model="sandbox/echo", max_tokens=100, messages=[{"role": "user", "content": "Hello"}]
        ) as stream:
            assert stream.get_final_text() == "You said: Hello"

    until(lambda: len(usage_rows(tmp_path)) == 4)
    client = openai.OpenAI(base_url=first.url, api_key=first.key, max_retries=0)
    slow = client.chat.completions.create(
        model="sandbox/echo", messages=[{"role": "user", "content": "[[pace=200ms]] [[tokens=400]]"}], stream=True
    )
    next(iter(slow))
    assert _held(second) > 0
    first.kill()
    until(lambda: _held(second) == 0)  # given back by the one that lives

    key = json.loads(second.cli("keys", "list", "--json"))[0]["id"]
    second.cli("keys", "revoke", key, "--yes")
    until(lambda: _refused(second, first.key))
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


def until(holds: Callable[[], bool]) -> None:
    """Wait until something is so."""
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.1)
