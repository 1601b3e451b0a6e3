"""Local token counting: equal to the published tokenizer, off the event loop, bounded, without network."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import json
import shutil
import socket
import subprocess
import sys
import time
from importlib.resources import files
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tollgate import tokenizer, tokens
from tollgate.tokenizer.texts import AUDIO, FILE, IMAGE, IMAGE_LOW, MESSAGE, PRIMER, VIDEO, request_texts

TEXTS = {
    "english": "The quick brown fox jumps over the lazy dog. It's 12345.6 o'clock, isn't it?",
    "german": "Die Vereinbarkeit von Beruf und Familie stellt für viele eine große Herausforderung dar.",
    "russian": "Быстрая коричневая лиса прыгает через ленивую собаку.",
    "chinese": "人工智能正在改变人们的工作和生活方式。",
    "japanese": "人工知能は人々の働き方を変えつつあります。",
    "korean": "인공지능은 사람들의 일하는 방식을 바꾸고 있습니다.",
    "hindi": "कृत्रिम बुद्धिमत्ता लोगों के काम करने के तरीके को बदल रही है।",
    "arabic": "الذكاء الاصطناعي يغير طريقة عمل الناس.",
    "emoji": "😀🎉👍🏽👩‍👩‍👧‍👦🚀🔥 ok",
    "code": "def fib(n: int) -> int:\n\treturn n if n < 2 else fib(n - 1)\r\n\r\n\n  #  done  \n",
    "specials": "<|endoftext|> and <|endofprompt|> are text here",
    "blanks": " \n\t  \n\n   x   ",
    "lone surrogate": "a\ud800b",
}

_REFERENCE = """
import sys, json, tiktoken
texts = json.load(sys.stdin)
print(json.dumps({name: [len(tiktoken.get_encoding(name).encode(text, disallowed_special=())) for text in texts] for name in sys.argv[1:]}))
"""  # noqa: E501
_HOME = "https://openaipublic.blob.core.windows.net/encodings/"


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[int]]:
    """The counts of tiktoken itself, with its download cache filled from our files (it checks their hashes)."""
    cache = tmp_path_factory.mktemp("cache")
    for name in tokenizer.NAMES:
        with files(tokenizer).joinpath(f"{name}.tiktoken").open("rb") as source:
            (cache / hashlib.sha1(f"{_HOME}{name}.tiktoken".encode()).hexdigest()).write_bytes(source.read())
    done = subprocess.run(
        [sys.executable, "-c", _REFERENCE, *tokenizer.NAMES],
        input=json.dumps(list(TEXTS.values())),
        text=True,
        capture_output=True,
        check=True,
        env={"TIKTOKEN_CACHE_DIR": str(cache)},
    )
    shutil.rmtree(cache)
    return json.loads(done.stdout)


@pytest.mark.parametrize("name", tokenizer.NAMES)
async def test_counts_equal_the_published_tokenizer(name: str, published: dict[str, list[int]]) -> None:
    assert [await tokens.count([text], name) for text in TEXTS.values()] == published[name]
    assert await tokens.count(list(TEXTS.values()), name) == sum(published[name])


def test_an_encoding_keeps_its_ranks_once() -> None:
    encoding = tokenizer.load("cl100k_base")
    assert encoding.encode_ordinary("hello world") == [15339, 1917]
    held = [len(value) for value in vars(encoding).values() if isinstance(value, dict)]
    assert max(held) < 1000, "the 100,000 ranks must not be kept in addition to the library's tables"


async def test_an_unknown_encoding_is_the_default_one() -> None:
    text = [TEXTS["chinese"]]
    assert await tokens.count(text, "p50k_base") == await tokens.count(text) == await tokens.count(text, "o200k_base")


async def test_empty_texts_count_zero() -> None:
    assert await tokens.count([]) == await tokens.count(["", ""]) == 0


async def test_counting_uses_no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a socket was opened")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(tokens, "_encodings", {})
    assert await tokens.count(["hello world"]) == 2


async def test_a_missing_or_changed_rank_file_falls_back_to_the_heuristic(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(name: str) -> None:
        raise ValueError("not the published rank file")

    monkeypatch.setattr(tokens, "_encodings", {})
    monkeypatch.setattr(tokens, "_retry_at", {})
    monkeypatch.setattr(tokenizer, "load", fail)
    assert await tokens.count(["x" * 400]) == await tokens.count(["x" * 400]) == 100
    assert len(caplog.records) == 1


async def test_loading_an_encoding_is_retried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    load = tokenizer.load

    def fail(name: str) -> None:
        monkeypatch.setattr(tokenizer, "load", load)
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(tokens, "_encodings", {})
    monkeypatch.setattr(tokens, "_retry_at", {})
    monkeypatch.setattr(tokens, "RETRY_SECONDS", 0.0)
    monkeypatch.setattr(tokenizer, "load", fail)
    text = ["hello, wide world"]
    assert await tokens.count(text) == tokens.heuristic(text[0]) == 5
    assert await tokens.count(text) == 4


def test_a_changed_rank_file_is_rejected(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("encodings.json", "o200k_base.tiktoken"):
        (tmp_path / name).write_bytes(files(tokenizer).joinpath(name).read_bytes() + b"\n")
    monkeypatch.setattr("importlib.resources.files", lambda _: tmp_path)
    with pytest.raises(ValueError, match="not the published rank file"):
        tokenizer.load("o200k_base")


def test_importing_tokens_loads_no_tokenizer() -> None:
    code = "import sys; import tollgate.tokens; print('tiktoken' in sys.modules)"
    source = str(Path(tokens.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={"PYTHONPATH": source}
    )
    assert done.stdout.strip() == "False"


PATHOLOGICAL = {
    "carets": "^" * 100_000,
    "one letter": "a" * 399_000,
    "blanks": " " * 399_000,
    "ideographs": "漢" * 399_000,
    "over the cap": "^" * 10_000_000,
}


@pytest.mark.parametrize("text", PATHOLOGICAL.values(), ids=PATHOLOGICAL.keys())
async def test_a_pathological_text_is_counted_fast_and_off_the_event_loop(text: str) -> None:
    await tokens.count(["warm"])
    longest, running = 0.0, True

    async def watch() -> None:
        nonlocal longest
        while running:
            began = time.process_time()  # excludes the time of other processes
            await asyncio.sleep(0.001)
            longest = max(longest, time.process_time() - began)

    watching = asyncio.create_task(watch())
    began = time.process_time()
    assert await tokens.count([text]) > 0
    took = time.process_time() - began
    running = False
    await watching
    assert took < 2
    assert longest < 0.5


async def test_a_text_above_the_maximum_is_estimated() -> None:
    text = "hello " * 100_000
    assert await tokens.count([text]) == tokens.heuristic(text) == 150_000


async def test_counts_are_estimated_if_too_many_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "_waiting", tokens.MAX_WAITING)
    assert await tokens.count(["hello " * 1000]) == 1500


@pytest.mark.parametrize("language", ["english", "german", "russian", "chinese", "japanese", "korean", "emoji", "code"])
async def test_the_heuristic_is_within_a_factor_of_two(language: str) -> None:
    text = TEXTS[language] * 10
    assert 0.5 < tokens.heuristic(text) / await tokens.count([text]) < 2


@settings(max_examples=50, deadline=None)
@given(st.text(max_size=200))
def test_the_heuristic_accepts_any_text(text: str) -> None:
    assert (tokens.heuristic(text) > 0) == bool(text)


@pytest.mark.parametrize(("chars", "wanted"), [(0, 0), (1, 1), (4, 1), (5, 2), (4000, 1000)])
def test_an_estimate_rounds_up(chars: int, wanted: int) -> None:
    assert tokens.estimate(chars) == wanted


TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
BODIES = {
    "chat text": ("chat", {"model": "m", "messages": [{"role": "user", "content": "hi"}]}, ["hi"], MESSAGE + PRIMER),
    "chat parts": (
        "chat",
        {
            "messages": [
                {
                    "role": "user",
                    "name": "bob",
                    "content": [
                        {"type": "text", "text": "look"},
                        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
                        {"type": "image_url", "image_url": {"url": "https://x", "detail": "low"}},
                        {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}},
                        {"type": "file", "file": {"file_data": "AAAA", "filename": "a.pdf"}},
                    ],
                }
            ]
        },
        ["bob", "look"],
        MESSAGE + PRIMER + IMAGE + IMAGE_LOW + AUDIO + FILE,
    ),
    "chat calls": (
        "chat",
        {
            "messages": [
                {
                    "role": "assistant",
                    "content": None,
                    "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
                },
                {"role": "tool", "tool_call_id": "c", "content": "sunny"},
            ],
            "tools": [TOOL],
        },
        ["f", json.dumps([TOOL], separators=(",", ":")), "sunny", "{}"],
        2 * MESSAGE + PRIMER,
    ),
    "responses text": (
        "responses",
        {"input": "hi", "instructions": "be brief"},
        ["be brief", "hi"],
        2 * MESSAGE + PRIMER,
    ),
    "responses items": (
        "responses",
        {
            "input": [
                {
                    "role": "user",
                    "content": [
                        {"type": "input_text", "text": "look"},
                        {"type": "input_image", "image_url": "https://x", "detail": "low"},
                    ],
                },
                {
                    "type": "reasoning",
                    "id": "r",
                    "encrypted_content": "AAAA",
                    "summary": [{"type": "summary_text", "text": "hm"}],
                },
                {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
                {"type": "function_call_output", "call_id": "c", "output": "sunny"},
            ]
        },
        ["f", "hm", "look", "sunny", "{}"],
        4 * MESSAGE + PRIMER + IMAGE_LOW,
    ),
    "messages": (
        "messages",
        {
            "system": [{"type": "text", "text": "be brief", "cache_control": {"type": "ephemeral"}}],
            "messages": [
                {
                    "role": "user",
                    "content": [
                        {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "page"}},
                        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}},
                        {"type": "document", "source": {"type": "base64", "data": "AAAA"}},
                    ],
                },
                {
                    "role": "assistant",
                    "content": [
                        {"type": "thinking", "thinking": "hm", "signature": "AAAA"},
                        {"type": "redacted_thinking", "data": "AAAA"},
                        {"type": "tool_use", "id": "t", "name": "f", "input": {"city": "Rom"}},
                    ],
                },
                {
                    "role": "user",
                    "content": [
                        {"type": "tool_result", "tool_use_id": "t", "content": [{"type": "text", "text": "sunny"}]}
                    ],
                },
            ],
        },
        ["be brief", "f", "hm", "page", "sunny", '{"city":"Rom"}'],
        4 * MESSAGE + PRIMER + IMAGE + FILE,
    ),
    "parts that only some providers know": (
        "chat",
        {
            "messages": [
                {
                    "role": "user",
                    "content": [
                        {
                            "type": "document_url",
                            "document_url": "data:application/pdf;base64,AAAA",
                            "document_name": "a",
                        },
                        {"type": "file_url", "file_url": {"url": "AAAA"}, "file_name": "b.pdf"},
                        {"type": "audio_url", "audio_url": {"url": "data:;base64,AAAA"}},
                        {"type": "video_url", "video_url": {"url": "https://x/v.mp4"}},
                        {"type": "video", "video": ["data:image/jpeg;base64,AAAA"]},
                        {"type": "text", "text": "see"},
                    ],
                }
            ]
        },
        ["see"],
        MESSAGE + PRIMER + 2 * FILE + AUDIO + 2 * VIDEO,
    ),
    "embeddings": ("embeddings", {"input": ["a", "b"], "model": "m"}, ["a", "b"], 0),
}


@pytest.mark.parametrize(("dialect", "body", "texts", "extra"), BODIES.values(), ids=BODIES.keys())
async def test_a_request_counts_its_texts_framing_and_media(
    dialect: str, body: dict, texts: list[str], extra: int
) -> None:
    found, more = request_texts(dialect, body)
    assert (sorted(found), more) == (sorted(texts), extra)
    assert await tokens.count_request(dialect, body) == extra + await tokens.count(texts)


async def test_a_deep_or_malformed_body_is_counted() -> None:
    deep: object = "x"
    for _ in range(50_000):
        deep = [deep]
    assert await tokens.count_request("chat", {"messages": deep}) > 0
    for body in (
        {},
        {"messages": None},
        {"messages": "x"},
        {"messages": [None, 3, {"content": {"type": ["x"]}}]},
        {"tools": {}},
    ):
        assert await tokens.count_request("chat", body) >= PRIMER
