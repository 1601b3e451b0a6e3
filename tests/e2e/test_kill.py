"""A process killed at any time loses no acknowledged row and charges none twice (DESIGN invariants 1 and 2)."""

import asyncio
import contextlib
import json
import random
from decimal import Decimal

from support.client import CutOff, Raw
from support.inprocess import write_config, write_unused_mappings
from support.running import free_port, start_gateway
from support.usage_files import usage_rows
from support.waiting import until

KILLS = 20
CLIENTS = 16


async def send_requests(base: str, key: str, seen: list[str], stop: asyncio.Event) -> None:
    """Sends requests until the gateway is gone; appends the id of every completely received response to `seen`."""
    with contextlib.suppress(OSError, EOFError, CutOff):
        async with Raw(base, key) as client:
            while not stop.is_set():
                body = {
                    "model": "sandbox/echo",
                    "messages": [{"role": "user", "content": "[[tokens=8]] hello"}],
                    "stream": random.random() < 0.5,
                }
                status, headers, raw = await client.ask("/v1/chat/completions", body)
                text = raw.decode()
                if status == 200 and (text.endswith("data: [DONE]\n\n") if body["stream"] else text.endswith("}")):
                    seen.append(headers["x-request-id"])


async def run_and_kill(folder, port: int, key: str, seen: list[str]) -> str:
    running = start_gateway(folder, port=port)
    key = key or running.key
    stop = asyncio.Event()
    clients = [asyncio.create_task(send_requests(running.base, key, seen, stop)) for _ in range(CLIENTS)]
    before = len(seen)
    await until(lambda: len(seen) > before + 1)  # however slow the machine is
    await asyncio.sleep(random.uniform(0, 0.5))
    running.kill()
    stop.set()
    await asyncio.gather(*clients)
    return key


async def test_every_acknowledged_answer_has_exactly_one_row_after_twenty_kills(tmp_path):
    write_config(tmp_path)
    write_unused_mappings(tmp_path, but="chat")  # a gateway starts faster without them
    port, key, seen = free_port(), "", []
    for _ in range(KILLS):
        key = await run_and_kill(tmp_path, port, key, seen)
    assert len(seen) > KILLS, "too few responses under load"

    last = start_gateway(tmp_path, port=port)
    shown = json.loads(last.cli("credits", "show", "default", "--json"))
    assert last.stop() == 0
    rows = usage_rows(tmp_path)
    ids = [row["request_id"] for row in rows]
    assert len(ids) == len(set(ids)), "a request is recorded twice"
    assert set(seen) <= set(ids), f"{len(set(seen) - set(ids))} of {len(seen)} acknowledged answers have no row"
    spent = sum((row["cost"] for row in rows), Decimal(0))
    account = shown[0] if isinstance(shown, list) else shown
    assert Decimal(str(account["balance"])) == Decimal(str(account["granted"])) - spent
