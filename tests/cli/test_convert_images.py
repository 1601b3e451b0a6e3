"""`tollgate convert --from images`: what an image model's file makes of an input and of an answer,
on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from support.inprocess import unspoken
from tollgate.cli import main

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """Three image providers whose secrets are not set: converting needs no key."""
    (tmp_path / "mappings").mkdir()
    for name in ("chat", "responses", "messages", "gemini"):
        (tmp_path / "mappings" / f"{name}.yaml").write_text(unspoken(name))
    (tmp_path / "providers").mkdir()
    for name in ("fal", "stability", "together-images"):
        (tmp_path / "providers" / f"{name}.yaml").write_text((ROOT / "providers" / f"{name}.yaml").read_text())
    (tmp_path / "gateway.yaml").write_text("")
    return tmp_path / "gateway.yaml"


def run(config: Path, *arguments: str, given: object) -> Result:
    return CliRunner().invoke(
        main, ["convert", "--from", "images", "--config", str(config), *arguments, "-"], input=json.dumps(given)
    )


def test_an_input_gives_the_call_the_body_and_the_price(config: Path) -> None:
    result = run(config, "--model", "black-forest-labs/flux-schnell", given={"prompt": "a fox", "n": 2, "steps": 8})
    assert result.exit_code == 0, result.stderr
    said = json.loads(result.stdout)
    assert (said["provider"], said["call"]) == (
        "together-images",
        "POST https://api.together.xyz/v1/images/generations",
    )
    assert said["body"]["model"] == "black-forest-labs/FLUX.1-schnell"
    assert said["body"]["width"] == 1024, "defaults are filled in"
    assert said["price"] == "0.0113246208"


def test_an_answer_gives_the_job_and_its_price(config: Path) -> None:
    answer = {
        "images": [{"url": "https://fal.media/a.png", "width": 1024, "height": 768, "content_type": "image/jpeg"}]
    }
    said = json.loads(
        run(config, "--model", "black-forest-labs/flux-dev", "--answer", "--to", "fetch", given=answer).stdout
    )
    assert (said["status"], said["price"], said["currency"]) == ("succeeded", "0.025", "USD")
    assert said["images"] == [{"url": "https://fal.media/a.png", "width": 1024, "height": 768}]
    waiting = json.loads(
        run(config, "--model", "black-forest-labs/flux-dev", "--answer", given={"status": "IN_PROGRES"}).stdout
    )
    assert (waiting["status"], waiting["unknown_word"]) == ("processing", "IN_PROGRES")


@pytest.mark.parametrize(
    ("arguments", "given", "said"),
    [
        (("--model", "black-forest-labs/flux-dev"), {}, "input.prompt: is required"),
        (("--model", "black-forest-labs/flux-de"), {}, "no image model black-forest-labs/flux-de"),
        (("--model", "stabilityai/sd3.5-large", "--answer", "--to", "poll"), {}, "stability has no poll step"),
        ((), {}, "--from images needs --model"),
        (("--model", "x", "--to", "chat"), {}, "--to is a step of the job"),
    ],
)
def test_what_is_wrong_is_said(config: Path, arguments: tuple[str, ...], given: object, said: str) -> None:
    result = run(config, *arguments, given=given)
    assert result.exit_code in (1, 2)
    assert said in result.stderr
