"""`tollgate convert --from images`: the calls and results of an image model's file, on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from support.inprocess import write_unused_mappings
from support.places import ROOT
from tollgate.cli import main


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """Three image providers without their secrets: converting needs no key."""
    write_unused_mappings(tmp_path)
    (tmp_path / "providers").mkdir()
    for name in ("fal", "stability", "together-images"):
        (tmp_path / "providers" / f"{name}.yaml").write_text((ROOT / "providers" / f"{name}.yaml").read_text())
    (tmp_path / "gateway.yaml").write_text("")
    return tmp_path / "gateway.yaml"


def run(config: Path, *arguments: str, document: object) -> Result:
    return CliRunner().invoke(
        main, ["convert", "--from", "images", "--config", str(config), *arguments, "-"], input=json.dumps(document)
    )


def test_an_input_results_in_a_call_its_body_and_the_price(config: Path) -> None:
    result = run(config, "--model", "black-forest-labs/flux-schnell", document={"prompt": "a fox", "n": 2, "steps": 8})
    assert result.exit_code == 0, result.stderr
    output = json.loads(result.stdout)
    assert (output["provider"], output["call"]) == (
        "together-images",
        "POST https://api.together.xyz/v1/images/generations",
    )
    assert output["body"]["model"] == "black-forest-labs/FLUX.1-schnell"
    assert output["body"]["width"] == 1024, "defaults are filled in"
    assert output["price"] == "0.0113246208"


def test_an_answer_results_in_the_job_s_state_and_price(config: Path) -> None:
    answer = {
        "images": [{"url": "https://fal.media/a.png", "width": 1024, "height": 768, "content_type": "image/jpeg"}]
    }
    job = json.loads(
        run(config, "--model", "black-forest-labs/flux-dev", "--answer", "--to", "fetch", document=answer).stdout
    )
    assert (job["status"], job["price"], job["currency"]) == ("succeeded", "0.025", "USD")
    assert job["images"] == [{"url": "https://fal.media/a.png", "width": 1024, "height": 768}]
    waiting = json.loads(
        run(config, "--model", "black-forest-labs/flux-dev", "--answer", document={"status": "IN_PROGRES"}).stdout
    )
    assert (waiting["status"], waiting["unknown_word"]) == ("processing", "IN_PROGRES")


@pytest.mark.parametrize(
    ("arguments", "given", "message"),
    [
        (("--model", "black-forest-labs/flux-dev"), {}, "input.prompt: is required"),
        (("--model", "black-forest-labs/flux-de"), {}, "no image model black-forest-labs/flux-de"),
        (("--model", "stabilityai/sd3.5-large", "--answer", "--to", "poll"), {}, "stability has no poll step"),
        ((), {}, "--from images needs --model"),
        (("--model", "x", "--to", "chat"), {}, "--to is a step of the job"),
        (
            ("--model", "black-forest-labs/flux-dev", "--to", "poll"),
            {"prompt": "a"},
            "--to poll says which step's answer",
        ),
        (("--model", "black-forest-labs/flux-dev", "--explain"), {"prompt": "a"}, "takes none of --stream, --error"),
        (("--model", "black-forest-labs/flux-dev", "--stream"), {"prompt": "a"}, "takes none of --stream, --error"),
        (("--model", "black-forest-labs/flux-dev", "--can", "x"), {"prompt": "a"}, "takes none of --stream, --error"),
    ],
)
def test_mistakes_are_reported(config: Path, arguments: tuple[str, ...], given: object, message: str) -> None:
    result = run(config, *arguments, document=given)
    assert result.exit_code in (1, 2)
    assert message in result.stderr
