"""Image jobs of one account at a fake provider (`image_provider`), as clients create and query them."""

import json

from tollgate.images.service import create_generation, get_generation, jobs_of
from tollgate.ledger import UsageRow
from tollgate.mapping import MappingFailure
from tollgate.services import Inbound

URL = [{"url": "https://pictures.example/a.png", "width": 1024, "height": 1024}]


class Script:
    """Answers in order; the last repeats."""

    def __init__(self, *answers):
        self.answers = list(answers)

    def __call__(self, method, path, body):
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


def inbound(key, body, request_id="req_1"):
    return Inbound("images", key, body if isinstance(body, bytes) else json.dumps(body).encode(), {}, request_id)


class Numbered:
    """Answers with jobs p0, p1, ... that never end."""

    def __init__(self):
        self.made = 0

    def __call__(self, method, path, body):
        if method == "GET":
            return 200, {"status": "processing"}
        self.made += 1
        return 200, {"id": f"p{self.made - 1}", "status": "starting"}


def pass_time(services, seconds):
    """Advances the clock of this gateway's jobs."""
    jobs = jobs_of(services)
    now = jobs.tracked.clock() + seconds
    jobs.tracked.clock = lambda: now


async def create(services, key, given=None, request_id="req_1", **more):
    reply = await create_generation(
        services, inbound(key, {"model": "acme/draw", "input": given or {"prompt": "a cat"}, **more}, request_id)
    )
    assert reply.status == 200
    envelope = json.loads(reply.body)
    assert (envelope["success"], envelope["code"]) == (True, 200)
    return envelope["data"]


def accepted_rows(services):
    """Collects the rows that the ledger accepts from now on."""
    rows: list[UsageRow] = []
    accept = services.ledger.accept
    services.ledger.accept = lambda row: rows.append(row) or accept(row)
    return rows


async def look(services, key, job_id):
    return json.loads((await get_generation(services, key, job_id)).body)["data"]


def unfit(values):
    """A template that fails on these values."""
    raise MappingFailure("cannot subtract a text and a number")
