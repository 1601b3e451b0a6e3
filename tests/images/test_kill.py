"""Fifty jobs with many readers while the gateway is killed and restarted: every job ends and is charged once."""

import asyncio
import contextlib
import json
from collections import Counter
from decimal import Decimal

import httpx

from support.inprocess import write_unused_mappings
from support.running import start_gateway
from support.waiting import until
from upstream.scripted import ok, upstream

JOBS = 50
KILLS = 4
FAR = """
provider: far
images:
  submit: {call: POST http://127.0.0.1:PORT/jobs, body: $.input, result: {id: $.id, status: $.status}}
  poll: {call: "GET http://127.0.0.1:PORT/jobs/{{ $job.id }}", every: [0.2], give_up: 120, result: {status: $.status, error: $.error, images: [{$each: $i in $.images, url: $i}]}}
models:
  far/draw: {upstream: draw, price: {price: "0.03"}, input_schema: {type: object, required: [name], properties: {name: {type: string}}}}
"""  # noqa: E501
HELD = """
provider: held
images:
  submit: {call: POST http://127.0.0.1:PORT/held, body: $.input, result: {status: succeeded, images: [{$each: $i in $.images, url: $i}]}}
models:
  held/draw: {upstream: draw, price: {price: "0.05"}, input_schema: {type: object, required: [name], properties: {name: {type: string}}}}
"""  # noqa: E501


class Provider:
    """Image jobs over HTTP that take a second; every tenth fails. It outlives the gateway, as real providers do."""

    def __init__(self):
        self.jobs = {}
        self.held = Counter()

    async def __call__(self, seen, peer):
        await peer.send(ok(json.dumps(await self.answer(seen)).encode(), "content-type: application/json"))

    async def answer(self, seen):
        now = asyncio.get_running_loop().time()
        method, path, _ = seen.line.split()
        if path == "/held":
            name = json.loads(seen.body)["name"]
            self.held[name] += 1
            await asyncio.sleep(0.2)
            return {"images": [picture(name)]}
        if method == "POST":
            job = f"j{len(self.jobs)}"
            self.jobs[job] = (now + 1.0, json.loads(seen.body)["name"])
            return {"id": job, "status": "starting"}
        due, name = self.jobs[path.rpartition("/")[2]]
        if now < due:
            return {"status": "processing"}
        if fails(name):
            return {"status": "failed", "error": f"no {name}"}
        return {"status": "succeeded", "images": [picture(name)]}


def picture(name):
    return f"https://pictures.example/{name}.png"


def fails(name):
    return name.endswith("0")


class Clients:
    """Submits jobs and reads them until they have ended, however often the gateway is killed meanwhile."""

    def __init__(self, http):
        self.http = http
        self.acknowledged: dict[str, str] = {}
        """The name that each job was submitted with, by the id that the gateway returned."""
        self.seen: dict[str, dict] = {}
        """Each job as it was when a reader first saw it ended."""
        self.two_kills_are_left = asyncio.Event()

    async def submit(self, number):
        name, model = f"n{number}", "held/draw" if number % 5 == 1 else "far/draw"
        await asyncio.sleep(number * 0.08)  # spread over all kills
        if model == "held/draw":
            # the third start of a call is its last: on a busy machine, each kill may interrupt the same call
            await self.two_kills_are_left.wait()
        while True:
            with contextlib.suppress(httpx.HTTPError):
                reply = await self.http.post("/images/generations", json={"model": model, "input": {"name": name}})
                if reply.status_code == 200:
                    self.acknowledged[reply.json()["data"]["id"]] = name
                    return
            await asyncio.sleep(0.2)

    async def read(self):
        """Reads all jobs without an end, again and again."""
        while True:
            for job_id in [each for each in self.acknowledged if each not in self.seen]:
                with contextlib.suppress(httpx.HTTPError):
                    reply = await self.http.get(f"/images/generations/{job_id}")
                    assert reply.status_code in (200, 500, 502, 503), reply.text
                    if reply.status_code == 200 and reply.json()["data"]["status"] in ("succeeded", "failed"):
                        self.seen.setdefault(job_id, reply.json()["data"])
                await asyncio.sleep(0.005)
            await asyncio.sleep(0.05)

    async def shown(self):
        """All jobs as they are now."""
        return {
            job_id: (await self.http.get(f"/images/generations/{job_id}")).json()["data"]
            for job_id in self.acknowledged
        }


async def test_every_job_ends_and_is_charged_once_despite_kills(tmp_path):
    write_unused_mappings(tmp_path)
    provider = Provider()
    async with upstream(provider) as server:
        (tmp_path / "providers").mkdir()
        (tmp_path / "providers" / "far.yaml").write_text(FAR.replace("PORT", str(server.port)))
        (tmp_path / "providers" / "held.yaml").write_text(HELD.replace("PORT", str(server.port)))
        running = await asyncio.to_thread(start_gateway, tmp_path)
        async with httpx.AsyncClient(
            base_url=running.url,
            headers={"authorization": f"Bearer {running.key}"},
            timeout=10,
            limits=httpx.Limits(max_keepalive_connections=0),
        ) as http:
            clients = Clients(http)
            async with asyncio.TaskGroup() as reading:
                readers = [reading.create_task(clients.read()) for _ in range(6)]
                submissions = asyncio.gather(*(clients.submit(number) for number in range(JOBS)))
                listen = int(running.base.rpartition(":")[2])
                for kill in range(KILLS):
                    if kill == KILLS - 2:
                        clients.two_kills_are_left.set()
                    await asyncio.sleep(0.35)
                    running.kill()
                    running = await asyncio.to_thread(start_gateway, tmp_path, port=listen)
                await submissions
                await until(lambda: len(clients.seen) == JOBS)
                for reader in readers:
                    reader.cancel()
            shown = await clients.shown()
            await asyncio.sleep(0.3)
            await asyncio.to_thread(running.stop)
    assert len(clients.acknowledged) == JOBS
    assert shown == clients.seen, "an ended job does not change"
    for job_id, job in shown.items():
        name = clients.acknowledged[job_id]
        assert job["status"] == ("failed" if fails(name) else "succeeded"), "no deadline was close"
        assert job.get("images") == (None if fails(name) else [{"url": picture(name)}])
    check_charges(running, [job for job in shown.values() if job["status"] == "succeeded"], provider)


def check_charges(running, good, provider):
    """Fails unless each job has one row and each good one was charged once.

    A job whose submission was interrupted by a kill is stored, though no client knows its id. It ends and is charged as
    well.
    """
    rows = json.loads(running.cli("usage", "--sql", "SELECT request_id, model, cost, outcome FROM usage", "--json"))
    assert len({row["request_id"] for row in rows}) == len(rows), "one row for each job"
    paid = Counter((row["model"], Decimal(str(row["cost"]))) for row in rows if Decimal(str(row["cost"])))
    owed = Counter((job["model"], Decimal(str(job["cost"]))) for job in good)
    assert owed - paid == Counter()
    assert paid.total() <= len(provider.jobs) + provider.held.total()
    balance = Decimal(str(json.loads(running.cli("credits", "show", "default", "--json"))["balance"]))
    assert Decimal(100) - balance == sum(cost * count for (_, cost), count in paid.items())
