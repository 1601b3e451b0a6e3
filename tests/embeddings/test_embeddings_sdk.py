"""The official client over a real loopback server, and the memory that a very large answer takes."""

import json
import random
from pathlib import Path

import httpx
import pytest
from openai import AsyncOpenAI, BadRequestError, OpenAI

from support.inprocess import write_unused_mappings
from support.places import ROOT
from support.running import gateway
from upstream.scripted import ok, upstream


def sandbox_only(folder):
    """Writes one provider and no conversation mappings, which are not needed here."""
    (folder / "providers").mkdir(exist_ok=True)
    (folder / "providers" / "sandbox.yaml").write_text((ROOT / "providers" / "sandbox.yaml").read_text())
    write_unused_mappings(folder, but="embeddings")
    return folder


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    with gateway(sandbox_only(tmp_path_factory.mktemp("embeddings"))) as running:
        yield running


def test_the_official_client_receives_floats_although_it_requests_base64(running):
    client = OpenAI(base_url=running.url, api_key=running.key)
    found = client.embeddings.create(model="sandbox/embed", input=["one", "two"])
    assert [len(item.embedding) for item in found.data] == [1536, 1536]
    assert all(isinstance(value, float) for value in found.data[0].embedding[:10])
    raw = client.embeddings.with_raw_response.create(model="sandbox/embed", input="one")
    assert isinstance(json.loads(raw.text)["data"][0]["embedding"], list)
    assert raw.headers["x-request-id"].startswith("req_")
    explicit = client.embeddings.create(model="embed", input="one", encoding_format="float", dimensions=256)
    assert len(explicit.data[0].embedding) == 256


def test_token_arrays_are_accepted_as_input(running):
    client = OpenAI(base_url=running.url, api_key=running.key)
    assert len(client.embeddings.create(model="sandbox/embed", input=[1, 2, 3]).data) == 1
    many = client.embeddings.create(model="sandbox/embed", input=[[1, 2], [3]])
    assert len(many.data) == 2
    assert many.usage.prompt_tokens == 3


async def test_the_asynchronous_client_receives_usage(running):
    async with AsyncOpenAI(base_url=running.url, api_key=running.key) as client:
        found = await client.embeddings.create(model="sandbox/embed", input="one")
        assert found.usage.prompt_tokens == found.usage.total_tokens == 1


def test_errors_reach_the_client_in_the_envelope(running):
    client = OpenAI(base_url=running.url, api_key=running.key, max_retries=0)
    with pytest.raises(BadRequestError) as raised:
        client.embeddings.create(model="sandbox/none", input="one")
    assert raised.value.response.json() == {
        "success": False,
        "code": 400,
        "message": "failed to bind request: model not found: sandbox/none",
    }


FAR = """
provider: far
url: http://127.0.0.1:PORT/v1
speaks: {embeddings: {path: /embeddings, batch: BATCH}}
models:
  far/embed: {upstream: embed-1, type: embedding, max_inputs: 4096, price: {prompt: "1", unit: 1000000}}
"""


def large_answer(inputs, packed):
    """An answer with this many vectors of 1,536 dimensions, as numbers or as base64."""
    generator = random.Random(7)
    if packed:
        vector = json.dumps("".join(generator.choice("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghij") for _ in range(8192)))
    else:
        vector = json.dumps([round(generator.uniform(-0.1, 0.1), 9) for _ in range(1536)])
    items = ",".join(f'{{"object":"embedding","index":{n},"embedding":{vector}}}' for n in range(inputs))
    return f'{{"object":"list","data":[{items}],"model":"embed-1","usage":{{"prompt_tokens":{inputs},"total_tokens":{inputs}}}}}'.encode()  # noqa: E501


def peak_memory(process):
    """The peak resident memory of the process, in bytes."""
    line = next(
        line for line in Path(f"/proc/{process.pid}/status").read_text().splitlines() if line.startswith("VmHWM")
    )
    return int(line.split()[1]) * 1024


@pytest.mark.parametrize(
    ("packed", "batch"),
    [(False, 2048), (True, 2048), (False, 256)],
    ids=["floats pass", "base64 decoded", "split and joined"],
)
async def test_a_very_large_answer_takes_less_than_twice_its_size_in_memory(tmp_path, packed, batch):
    if not Path("/proc/self/status").exists():
        pytest.skip("no /proc here: the peak memory of a process cannot be read")
    sandbox_only(tmp_path)
    answers = {1: large_answer(1, packed), batch: large_answer(batch, packed)}

    async def answer(seen, peer):
        await peer.send(ok(answers[len(json.loads(seen.body)["input"])], "content-type: application/json"))

    async with upstream(answer) as far:
        text = FAR.replace("PORT", str(far.port)).replace("BATCH", str(batch))
        (tmp_path / "providers" / "far.yaml").write_text(text)
        with gateway(tmp_path) as running:
            async with httpx.AsyncClient(timeout=60, headers={"authorization": f"Bearer {running.key}"}) as http:

                async def ask(inputs):
                    size, tail = 0, b""
                    async with http.stream(
                        "POST", f"{running.url}/embeddings", json={"model": "far/embed", "input": ["x"] * inputs}
                    ) as reply:
                        assert reply.status_code == 200
                        async for block in reply.aiter_bytes():
                            size += len(block)
                            tail = (tail + block)[-200:]
                    assert json.loads(b"{" + tail[tail.rindex(b'"usage"') :])["usage"]["prompt_tokens"] == inputs
                    return size

                await ask(1)
                before = peak_memory(running.process)
                size = await ask(2048)
                used = peak_memory(running.process) - before
    assert size > 30_000_000
    assert used < 2 * size, f"{used / 1e6:.0f} MB for an answer of {size / 1e6:.0f} MB"
    print(f"{used / size:.2f} times the answer of {size / 1e6:.0f} MB")
