"""`tollgate check` and `tollgate init` on the command line."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tollgate.cli import COMMANDS, check_running, main
from tollgate.config import can_words
from tollgate.config.files import defaults_root
from tollgate.mapping.hub import USAGE_FIELDS

BAD = (
    "provider: acme\nurl: https://a.example\nspeaks: {chat: /c}\nwieght: 1\nmodels: {acme/a: {price: {prompt: "
    "cheap}}}\n"
)
GOOD = BAD.replace("wieght: 1\n", "").replace("cheap", '"1"').replace("}}}", ', completion: "2", unit: 1000000}}}')


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "providers").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*words: str) -> Result:
    return CliRunner().invoke(main, words)


def test_check_reports_every_problem_and_fails(folder: Path) -> None:
    (folder / "providers" / "acme.yaml").write_text(BAD)
    result = run("check")
    assert result.exit_code == 1
    assert (
        "providers/acme.yaml:4:1: found unknown key `wieght`, wanted a known one (did you mean `weight`?)\n    wieght: "
        "1\n    ^" in result.stderr
    )
    assert "providers/acme.yaml:5:35: models.acme/a.price.prompt: found cheap" in result.stderr
    assert result.stdout == "2 errors, 0 warnings in 1 file; nothing was loaded\n"


def test_options_of_an_unknown_auth_kind_are_not_checked(folder: Path) -> None:
    (folder / "providers" / "acme.yaml").write_text(GOOD + "auth: {kind: oauth, token_url: https://a.example/t}\n")
    result = run("check")
    assert 'auth.kind: found "oauth", wanted' in result.stderr
    assert result.stdout == "1 error, 0 warnings in 1 file; nothing was loaded\n"


def test_what_follows_from_a_misspelt_key_is_not_reported(folder: Path) -> None:
    signed = "auth: {kind: hmac, adds: {headers: {x-time: $now, x-sig: \"{{ $call.body | digest('md5') }}\"}}}\n"
    poll = "{while: $.waits, call: GET /jobs, result: GET /result, keep: {usage: $.usage}}"
    speaks = f"speaks: {{chat: {{path: /c, poll: {poll}}}}}"
    (folder / "providers" / "acme.yaml").write_text(GOOD.replace("speaks: {chat: /c}", speaks) + signed)
    (folder / "providers" / "bemo.yaml").write_text(
        "provider: bemo\nimages:\n  submit: {call: POST https://b.example/x, body: $.input, result: {url: $.u}}\n"
        '  poll: {call: "GET {{ $job.url | raw }}", host: b.example, result: {status: $.s, images: [{url: $.p}]}}\n'
        "models: {bemo/a: {price: {price: '1'}, input_schema: {type: object}}}\n"
    )
    result = run("check")
    assert [line.split(" ")[0] for line in result.stderr.splitlines() if line.startswith("providers/")] == [
        "providers/acme.yaml:3:67:",
        "providers/acme.yaml:5:14:",
        "providers/bemo.yaml:4:44:",
    ], result.stderr


def test_a_consequence_of_another_mistake_is_not_reported(folder: Path) -> None:
    """A part that was removed because it is invalid is not reported as missing."""
    (folder / "providers" / "acme.yaml").write_text(
        "provider: acme\nvars: {host: [x]}\nurl: https://{{ $vars.host }}\n"
        "speaks: {chat: {path: /c, poll: {while: $.a, call: /b, hosts: [[a]]}}}\nrequest: [drop]\n"
        "images: {submit: {call: POST https://a.example/b, result: {images: [$.url]}}}\n"
        'models: {acme/a: {price: {prompt: "0", completion: "0"}}, acme/i: {input_schema: {}, price: 7}}\n'
    )
    (folder / "providers" / "bemo.yaml").write_text(
        GOOD.replace("acme", "bemo") + "vasr: {x: y}\nquery: {a: $vars.x}\n"
    )
    result = run("check")
    assert [line for line in result.stderr.splitlines() if not line.startswith(" ")] == [
        "providers/acme.yaml:2:14: vars.host: found a list, wanted text, a whole number or true or false",
        'providers/acme.yaml:4:52: speaks.chat.poll.call: found "/b", wanted a method and an address (POST '
        + "https://api.example/v1/jobs)",
        "providers/acme.yaml:4:64: speaks.chat.poll.hosts[0]: found a list, wanted text",
        'providers/acme.yaml:5:11: request[0]: found "drop", wanted a map',
        "providers/acme.yaml:7:93: models.acme/i.price: found 7, wanted a map",
        "providers/bemo.yaml:5:1: found unknown key `vasr`, wanted a known one (did you mean `vars`?)",
    ]


def test_a_model_that_changes_a_missing_image_step_is_reported(folder: Path) -> None:
    """Consequences of a removed invalid step, auth kind or error rule are not reported."""
    (folder / "providers" / "acme.yaml").write_text(
        "provider: acme\nimages:\n  submit: {call: /jobs, result: {images: [$.url]}}\n"
        "models:\n  acme/i: {input_schema: {}, price: {price: '1'}, submit: {headers: {a: b}}, poll: {auth: false}}\n"
        "auth: {kidn: sigv4, service: bedrock}\nerrors: {rules: [{when: 7, verdict: next}]}\n"
    )
    (folder / "providers" / "bemo.yaml").write_text(
        "provider: bemo\nimages:\n  prepare: POST https://a.example\n"
        "  submit: {call: POST https://a.example, body: $job.picture, result: {images: [$.url]}}\n"
        "models: {bemo/i: {input_schema: {}, price: {price: '1'}, prepare: {headers: {a: b}}}}\n"
        "auth: {kind: oauth_client, token_ulr: https://a.example, client_id: a, client_secret: b}\n"
        "in_text: [{from: [a], kind: text}]\n"
    )
    result = run("check")
    assert [line for line in result.stderr.splitlines() if not line.startswith(" ")] == [
        'providers/acme.yaml:3:18: images.submit.call: found "/jobs", wanted a method and an address (POST '
        + "https://api.example/v1/jobs)",
        "providers/acme.yaml:5:84: models.acme/i.poll: found what differs from `images.poll`, but this provider has no "
        + "such step (a step of the model's own needs a `call`)",
        'providers/acme.yaml:6:7: auth: found no `kind`, wanted "none", "sigv4", "signed", "oauth_jwt" or '
        + '"oauth_client"',
        "providers/acme.yaml:7:25: errors.rules[0].when: found 7, wanted text or true or false",
        'providers/bemo.yaml:3:12: images.prepare: found "POST https://a.example", wanted a map',
        "providers/bemo.yaml:6:39: auth: `oauth_client` has no option `token_ulr` (did you mean `token_url`?)",
        "providers/bemo.yaml:7:18: `from` is a text without blanks at its ends, found a list (from: <think>)",
    ]


def test_mistakes_in_one_file_do_not_hide_those_of_others(folder: Path) -> None:
    """All errors are reported at once (DESIGN section 3): of shape, compile errors in the same file and in others, and
    failing examples of valid files. What a file lacks because of its errors is not reported."""
    (folder / "gateway.yaml").write_text("retry: {attempts: four}\n")
    (folder / "mappings").mkdir()
    (folder / "mappings" / "own.yaml").write_text("mapping: own\nrequest: {to_hub: {model: $mdoel.id}}\n")
    acme = "provider: acme\nurl: https://a.example\nspeaks: {chat: /c}\nrequest: [{renmae: {a: b}}]\n"
    (folder / "providers" / "acme.yaml").write_text(acme + "modles: {acme/a: {}}\n")
    example = "{of: request, given: {a: 1}, expect: {a: 2}}"
    (folder / "providers" / "fine.yaml").write_text(GOOD.replace("acme", "fine") + f"examples: [{example}]\n")
    (folder / "providers" / "own.yaml").write_text(
        f"{GOOD.replace('acme', 'own').replace('chat:', 'own:')}examples: [{example}]\n"
    )
    result = run("check")
    reported = [line.partition(" (did")[0] for line in result.stderr.splitlines() if re.match(r"\S+:\d", line)]
    assert reported == [
        'gateway.yaml:1:19: retry.attempts: found "four", wanted a whole number from 1 to 3',
        "mappings/own.yaml:2:27: unknown name `$mdoel`",
        "providers/acme.yaml:4:12: unknown edit `renmae`",
        "providers/acme.yaml:5:1: found unknown key `modles`, wanted a known one",
        "providers/fine.yaml:5:53: example `request` differs at a: found 1, wanted 2",
    ]
    assert result.stdout == "5 errors, 0 warnings in 4 files; nothing was loaded\n"


def test_errors_stand_last_where_warnings_and_notes_do_not_push_them_off_the_screen(folder: Path) -> None:
    (folder / "providers" / "acme.yaml").write_text(GOOD.replace("speaks", "request: [{renmae: {a: b}}]\nspeaks"))
    (folder / "providers" / "bemo.yaml").write_text(GOOD.replace("acme", "bemo").replace(", unit: 1000000", ""))
    (folder / "providers" / "cold.yaml").write_text(
        GOOD.replace("acme", "cold") + "headers: {x: $secret.NOT_SET_HERE}\n"
    )
    lines = [line for line in run("check").output.splitlines() if not line.startswith("  ")]
    assert [
        re.sub(r"^(?:\d+ )?(\S+?)[:, ].*?(warning|unknown edit|is off|\d errors?).*", r"\1 \2", line) for line in lines
    ] == [
        "provider is off",
        "providers/bemo.yaml warning",
        "providers/bemo.yaml warning",
        "providers/acme.yaml unknown edit",
        "files 1 error",
    ], lines


@pytest.mark.parametrize("wrong", ["plugins: {}", "plugin: [own]", "plugins: [own"])
def test_filters_of_plugins_that_could_not_be_read_are_not_reported_as_unknown(folder: Path, wrong: str) -> None:
    (folder / "gateway.yaml").write_text(f"{wrong}\n")
    (folder / "providers" / "acme.yaml").write_text(GOOD + "request: [{set: {a: '{{ $.a | of_a_plugin }}'}}]\n")
    result = run("check")
    assert "gateway.yaml:" in result.stderr
    assert "of_a_plugin" not in result.stderr


def test_check_summarizes_a_valid_configuration(folder: Path) -> None:
    (folder / "providers" / "acme.yaml").write_text(GOOD)
    result = run("check", "--routes")
    assert result.exit_code == 0, result.output
    assert "acme/a <- acme:a (chat)\n" in result.stdout
    assert "1 provider on, 0 off, 1 model, 1 route: 0 errors, 0 warnings\n" in result.stdout


def test_check_lists_the_protocols_of_each_route(folder: Path) -> None:
    (folder / "providers" / "acme.yaml").write_text(
        "provider: acme\nurl: https://acme.example/v1\n"
        "speaks:\n  chat: /chat\n  messages: {path: /messages, models: [b*]}\n  embeddings: /embeddings\n"
        "models:\n  acme/a: {}\n  acme/b: {}\n  acme/c: {type: embedding}\n  acme/d: {protocols: [messages, chat]}\n"
    )
    assert [line for line in run("check", "--routes").stdout.splitlines() if " <- " in line] == [
        "acme/a <- acme:a (chat)",
        "acme/b <- acme:b (chat, messages)",
        "acme/c <- acme:c (embeddings)",
        "acme/d <- acme:d (chat)",
    ]
    assert json.loads(run("check", "--routes", "--json").stdout)["routes"] == {
        "acme/a": ["acme:a (chat)"],
        "acme/b": ["acme:b (chat, messages)"],
        "acme/c": ["acme:c (embeddings)"],
        "acme/d": ["acme:d (chat)"],
    }


def test_check_names_a_provider_that_is_off(folder: Path) -> None:
    (folder / "providers" / "acme.yaml").write_text(GOOD + "headers: {a: $secret.TOLLGATE_TEST_UNSET}\n")
    result = run("check")
    assert result.exit_code == 0
    assert "provider acme is off: secret TOLLGATE_TEST_UNSET is not set\n" in result.stdout


def test_check_prints_json(folder: Path) -> None:
    (folder / "providers" / "acme.yaml").write_text(BAD)
    result = run("check", "--json")
    found = json.loads(result.stdout)
    assert (result.exit_code, found["ok"], found["errors"]) == (1, False, 2)
    assert found["problems"][0] == {
        "file": "providers/acme.yaml",
        "line": 4,
        "column": 1,
        "level": "error",
        "path": "",
        "message": "found unknown key `wieght`, wanted a known one",
        "hint": "did you mean `weight`?",
    }


def test_check_writes_the_schemas_for_editors(folder: Path) -> None:
    result = run("check", "--write-schema", "schemas")
    assert result.exit_code == 0
    assert {"gateway.schema.json", "provider.schema.json"} <= {path.name for path in (folder / "schemas").iterdir()}


def test_init_writes_a_configuration_that_passes_check(folder: Path) -> None:
    result = run("init", "starter")
    assert result.exit_code == 0, result.output
    written = {str(path.relative_to(folder / "starter")) for path in (folder / "starter").rglob("*.yaml")}
    root = defaults_root()
    assert written == {
        "gateway.yaml",
        *(str(path.relative_to(root)) for name in ("providers", "mappings") for path in (root / name).rglob("*.yaml")),
    }
    assert "$schema=../schemas/provider.schema.json" in (folder / "starter" / "providers" / "sandbox.yaml").read_text()
    assert (folder / "starter" / "schemas" / "provider.schema.json").is_file()
    assert run("check", "--config", "starter").exit_code == 0


def test_init_overwrites_nothing(folder: Path) -> None:
    (folder / "gateway.yaml").write_text("# mine\n")
    result = run("init")
    assert result.exit_code == 1
    assert "nothing was written" in result.stderr
    assert (folder / "gateway.yaml").read_text() == "# mine\n"
    assert list((folder / "providers").iterdir()) == []


def test_init_leaves_nothing_behind_on_a_full_disk(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The empty file of a first try made every further one refuse."""
    left = [3]

    def full(made: Path, text: str, *rest: str) -> None:
        left[0] -= 1
        made.write_bytes(text.encode()[: 10**9 * left[0]])
        if not left[0]:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    result = run("init", "starter")
    assert result.exit_code == 1 and re.fullmatch(r"starter/\S+: No space left on device\n", result.stderr)
    assert [each for each in (folder / "starter").rglob("*") if each.is_file()] == []


def test_init_lists_existing_files_and_counts_the_rest(folder: Path) -> None:
    assert run("init", "starter").exit_code == 0
    named = run("init", "starter").stderr.splitlines()
    assert named[1] == "  starter/gateway.yaml" and re.fullmatch(r"  and \d+ more", named[6])
    assert named[7:] == ["tollgate init FOLDER writes all of them into a new folder, to copy from"]


def test_a_misspelt_command_has_a_suggestion() -> None:
    result = run("chek")
    assert result.exit_code == 2
    assert "did you mean `check`?" in result.stderr


def test_help_imports_no_command_module() -> None:
    code = (
        "import sys; from tollgate.cli import main; main(['--help'], standalone_mode=False); print(sorted(m for m in "
        "sys.modules if 'tollgate' in m))"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={"PYTHONPATH": ":".join(sys.path)}
    )
    assert result.stdout.splitlines()[-1] == "['tollgate', 'tollgate.cli']"
    assert all(about in result.stdout for _, about in COMMANDS.values())


def test_check_warns_of_models_without_a_price(folder: Path) -> None:
    (folder / "providers" / "acme.yaml").write_text("""provider: acme
url: https://a.example
speaks: {chat: /c, embeddings: /e}
models:
  acme/priced: {price: {prompt: "1", completion: "2", unit: 1000000}}
  acme/free: {price: {prompt: "0", completion: "0"}}
  acme/nothing: {}
  acme/half: {price: {prompt: "1", unit: 1000000}}
  acme/explained: {price: {prompt: "1", unit: 1000000, why: answers are one token}}
  acme/embed: {type: embedding, price: {prompt: "1", unit: 1000000}}
  acme/vectors: {type: embedding}
""")
    result = run("check", "--json")
    found = json.loads(result.stdout)
    assert (result.exit_code, found["errors"], found["warnings"]) == (0, 0, 3)
    assert [(each["line"], each["level"], each["path"], each["message"]) for each in found["problems"]] == [
        (
            7,
            "warning",
            "models.acme/nothing.price",
            "found no prompt and no completion price, so these tokens cost nothing",
        ),
        (8, "warning", "models.acme/half.price", "found no completion price, so these tokens cost nothing"),
        (11, "warning", "models.acme/vectors.price", "found no prompt price, so these tokens cost nothing"),
    ]
    assert {each["hint"] for each in found["problems"]} == {'"0" says that it is free'}
    shown = run("check").stderr
    assert "providers/acme.yaml:8:3: warning: models.acme/half.price: found no completion price" in shown


@pytest.mark.parametrize(
    ("first", "second", "warned"),
    [
        pytest.param("", "", ["first"], id="by name"),
        pytest.param("", "priority: -1", ["second"], id="by priority"),
        pytest.param("", "weight: 9", ["second"], id="by weight"),
        pytest.param("", "headers: {x: $secret.NOT_SET_HERE}", ["first"], id="the other one is off"),
        pytest.param("headers: {x: $secret.NOT_SET_HERE}", "", ["second", "first"], id="off, and would come first"),
    ],
)
def test_a_route_billed_at_another_s_price_needs_none(folder: Path, first: str, second: str, warned: list[str]) -> None:
    """README.md: the first route's price is billed. In turn, one of the two has a price."""
    warnings = []
    for priced in ("first", "second"):
        for name, more in (("first", first), ("second", second)):
            price = '{price: {prompt: "1", completion: "2", unit: 1000000}}' if name == priced else "{}"
            (folder / "providers" / f"{name}.yaml").write_text(
                f"provider: {name}\nurl: https://a.example/c\nspeaks: chat\n{more}\nmodels: {{acme/one: {price}}}\n"
            )
        problems = json.loads(run("check", "--json").stdout)["problems"]
        unpriced = [Path(each["file"]).stem for each in problems if "these tokens cost nothing" in each["message"]]
        assert unpriced in ([], [{"first": "second", "second": "first"}[priced]])
        warnings += unpriced
    assert warnings == warned


def test_many_models_without_a_price_are_one_warning(folder: Path) -> None:
    models = "".join(f"  acme/m{number}: {{}}\n" for number in range(40))
    (folder / "providers" / "acme.yaml").write_text(
        f"provider: acme\nurl: https://a.example\nspeaks: {{chat: /c}}\nmodels:\n{models}"
    )
    found = json.loads(run("check", "--json").stdout)
    assert [each["message"] for each in found["problems"]] == [
        (
            "found 40 models without a price for all their tokens, wanted one for each: acme/m0, acme/m1, acme/m2 and "
            "37 more"
        )
    ]


@pytest.mark.parametrize(
    ("settings", "place", "environ"),
    [
        ('store: {url: "postgresql://me:hunter2hunter2@db/x"}\n', "1:14: store.url", {}),
        ("store: postgresql://me:hunter2hunter2@db/x\n", "1:8: store", {}),
        (
            "store: {url: $secret.TOLLGATE_TEST_DB}\n",
            "1:14: store.url",
            {"TOLLGATE_TEST_DB": "postgresql://me:hunter2hunter2@db/x"},
        ),
    ],
    ids=["url", "short", "secret"],
)
def test_check_requires_asyncpg_for_a_shared_store(
    folder: Path, settings: str, place: str, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    (folder / "gateway.yaml").write_text(settings)
    (folder / "providers" / "acme.yaml").write_text(GOOD)
    assert run("check").exit_code == 0
    monkeypatch.setattr(check_running, "find_spec", lambda name: None)
    result = run("check")
    assert result.exit_code == 1
    assert f"gateway.yaml:{place}: found a PostgreSQL store and no asyncpg here, wanted it installed" in result.stderr
    assert "hunter2" not in result.output


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("ca_file", "5:10: ca_file: found a file without certificates, wanted them in PEM form"),
        ("client_certificate", "5:21: client_certificate: found no certificate with its key, wanted both in PEM form"),
    ],
)
def test_check_reads_certificate_files(folder: Path, name: str, message: str) -> None:
    (folder / "providers" / "acme.yaml").write_text(f"{GOOD}{name}: own.pem\n")
    (folder / "providers" / "own.pem").write_text("nothing")
    result = run("check")
    assert result.exit_code == 1
    assert f"providers/acme.yaml:{message}" in result.stderr


def test_check_warns_of_can_words_that_nothing_reads(folder: Path) -> None:
    (folder / "mappings").mkdir()
    (folder / "mappings" / "own.yaml").write_text(
        "mapping: own\nrequest:\n  from_hub: {$when: \"$can['own-word']\", $copy: [system, turns]}\nresponse: {to_hub: "
        "{$copy: [parts, stop]}}\n"
    )
    (folder / "providers" / "acme.yaml").write_text("""provider: acme
url: https://a.example
can: {reasonning: true, reasoning: true, own-word: true, video: no, tools: "false"}
speaks: {own: {path: /o, can: {toools: false}}, chat: {path: /c, can: {threads: true}}}
policies: [{match: ["a*"], can: {loud: true}, request: [{when: $can.soft, drop: [seed]}]}]
models:
  acme/a: {price: {prompt: "1", completion: "2", unit: 1000000}, can: {soft: true, file: true}}
""")
    found = json.loads(run("check", "--json").stdout)
    unread = "which no mapping and no edit reads, wanted a word that one does"
    shipped = "docs/conversion.md has those of the shipped mappings"
    assert [(each["line"], each["path"], each["message"], each["hint"]) for each in found["problems"]] == [
        (3, "can.reasonning", f'found "reasonning", {unread}', "did you mean `reasoning`?"),
        (3, "can.video", 'found the text "no", which counts as true, wanted true or false', ""),
        (3, "can.tools", 'found the text "false", which counts as true, wanted true or false', ""),
        (4, "speaks.own.can.toools", f'found "toools", {unread}', "did you mean `tools`?"),
        (5, "policies[0].can.loud", f'found "loud", {unread}', shipped),
        (7, "models.acme/a.can.file", f'found "file", {unread}', "did you mean `files`?"),
    ]
    assert (found["errors"], {each["level"] for each in found["problems"]}) == (0, {"warning"})


def test_the_list_of_can_words_read_by_code_is_complete() -> None:
    source = Path(can_words.__file__).parents[1]
    read = re.compile(r'\bcan\.get\("(\w+)"\)|_declares\(can, "(\w+)"')
    places = (
        "routing.py",
        "embeddings/__init__.py",
        "completions/cost_bound.py",
        "completions/estimate.py",
        "completions/exchange.py",
        "mapping/provider/offer.py",
        "mapping/provider/offers.py",
    )
    found = {found[1] or found[2] for name in places for found in read.finditer((source / name).read_text())}
    assert found == can_words.READ_BY_CODE


def test_check_warns_of_a_provider_without_models_and_of_unknown_usage_fields(folder: Path) -> None:
    (folder / "providers" / "acme.yaml").write_text("""provider: acme
url: https://a.example
usage: {read: {inpt: $.in, output: $.out}}
speaks: {chat: {path: /c, usage: {read: {$when: $.usage, cached: $.hit}}}}
""")
    result = run("check")
    assert result.exit_code == 0
    heads = [line for line in result.stderr.splitlines() if line.startswith("providers/")]
    words = ", ".join(sorted(USAGE_FIELDS))
    assert heads == [
        (
            "providers/acme.yaml:1:1: warning: found no models, so this provider serves nothing, wanted `models`, "
            "`models_from` or `discover`"
        ),
        f'providers/acme.yaml:3:16: warning: usage.read: found "inpt", wanted {words} (did you mean `input`?)',
        (
            f'providers/acme.yaml:4:58: warning: speaks.chat.usage.read: found "cached", wanted {words} (did you mean '
            "`cache_read`?)"
        ),
    ]


def test_check_warns_of_a_usage_template_without_field_names(folder: Path) -> None:
    """`read: $.usage` looks like a path to the usage, but does not map the vendor's field names."""
    (folder / "providers" / "acme.yaml").write_text(f"{GOOD}usage: {{read: $.usage}}\n")
    result = run("check")
    assert "acme.yaml:" in result.stderr and result.stderr.count("warning:") == 1
    assert "warning: usage.read: found `$.usage`, of which only audio_" in result.stderr
    assert "would be read (name each: {input: $.usage.prompt_tokens, output: ...})" in result.stderr


def test_check_explains_where_secrets_and_vars_can_be_used(folder: Path) -> None:
    (folder / "providers" / "acme.yaml").write_text(
        f'{GOOD}vars: {{a: x, b: "{{{{ $vars.a }}}}"}}\nrequest: [{{set: {{key: $secret.K}}}}]\n'
    )
    result = run("check")
    assert "unknown name `$vars` (one of `vars:` cannot read another)" in result.stderr
    assert "unknown name `$secret` (name it under `vars:` (x: $secret.NAME), and write `$vars.x`)" in result.stderr


def test_check_warns_of_mappings_that_drop_images(folder: Path) -> None:
    (folder / "providers" / "acme.yaml").write_text(GOOD)
    (folder / "mappings").mkdir()
    text = (
        "mapping: NAME\nrequest:\n  from_hub:\n    rules: '{{ $.system[*].text | join }}'\n"
        "    whose: '{{ $.turns[*].role | join }}'\n    prompt: PROMPT\n"
        "  harmless: {from_hub: ['turns[].parts[].mime']}\n"
    )
    (folder / "mappings" / "bare.yaml").write_text(
        text.replace("NAME", "bare").replace("PROMPT", '"{{ $.turns[*].parts[*].text | join }}"')
    )
    template = """[{$each: "$p in $.turns[*].parts[*]", $match: $p.kind, text: $p.text, image: IMAGE, $else: {$refuse: [{when: true, say: no}]}}]"""  # noqa: E501
    ways = {
        "full": "{$first: [$p.data, $p.url]}",
        "near": "$p.data",
        "far": "$p.url",
        "fetched": "{$first: [$p.data, '{{ ($p.url | inline).data }}']}",
    }
    for name, image in ways.items():
        (folder / "mappings" / f"{name}.yaml").write_text(
            text.replace("NAME", name).replace("PROMPT", template.replace("IMAGE", image))
        )
    result = run("check")
    assert (
        "mappings/bare.yaml:4:5: warning: no line says what becomes of image, file, audio, video parts of a user: "
        "they are left out" in result.stderr
    )
    for name, way in (("near", "url"), ("far", "data")):
        assert (
            f"mappings/{name}.yaml:4:5: warning: image parts of a user are left out where they come by `{way}`: "
            f"no line reads it (carry `$p.{way}` too, " in result.stderr
        )
    assert result.stderr.count("warning:") == 3 and result.exit_code == 0


def test_check_warns_of_mappings_that_leave_instructions_out(folder: Path) -> None:
    (folder / "providers" / "acme.yaml").write_text(GOOD)
    (folder / "mappings").mkdir()
    head = "request:\n  from_hub:\n    $refuse: [{when: \"$.turns[*].parts[?(@.kind != 'text')]\", say: text only}]\n"
    asked = "    prompt: '{{ $.turns[*].parts[*].text | join }}{{ $.turns[*].role | join }}'\n"
    rules = {
        "none": "",
        "named": "    rules: {$when: $.system, $value: {$lost: system}}\n",
        "sent": "    rules: '{{ $.system[*].text | join }}'\n",
    }
    for name, line in rules.items():
        (folder / "mappings" / f"{name}.yaml").write_text(f"mapping: {name}\n{head}{asked}{line}")
    result = run("check")
    assert (
        "mappings/none.yaml:4:5: warning: no line reads `system`: a client's instructions are left out" in result.stderr
    )
    assert result.stderr.count("warning:") == 1 and result.exit_code == 0


def test_check_warns_of_texts_that_a_mapping_skips_unnoticed(folder: Path) -> None:
    """A field that no line reads is in the loss list; an item that a condition or an index skips is not."""
    (folder / "providers" / "acme.yaml").write_text(GOOD)
    (folder / "mappings").mkdir()
    mapping = (
        "mapping: NAME\ndefine:\n  said($t): \"{{ $t.parts[?(@.kind == 'text')].text | join }}\"\n"
        "request:\n  from_hub:\n"
        "    $refuse: [{when: \"$.turns[*].parts[?(@.kind != 'text')]\", say: text only}]\n"
        "    rules: RULES\n    ask: '{{ said($.turns[-1]) }}'\n"
        "    pairs:\n      - $each: $t, $i in $.turns[0:-1]\n        $match: $t.role\n"
        "        user: {ask: '{{ said($t) }}', reply: '{{ said($.turns[$i + 1]) }}'}\n"
        "        assistant: FIRST\n        ELSE\n"
    )
    skipping = {
        "pairs": ("$.system[*].text", "$nothing", "$else: $nothing"),
        "first": ("$.system[0].text", "'{{ said($t) }}'", "$else: '{{ said($t) }}'"),
        "named": ("$.system[*].text", "{$when: $i == 0, $value: {$lost: a greeting}}", "$else: {$lost: later rules}"),
    }
    for name, words in skipping.items():
        text = mapping.replace("NAME", name)
        for hole, word in zip(("RULES", "FIRST", "ELSE"), words, strict=True):
            text = text.replace(hole, word)
        (folder / "mappings" / f"{name}.yaml").write_text(text)
    unnoticed = "and does not name that as lost (carry it, or name it where it is skipped: `$else: {$lost: ...}`)"
    between = "an answer before the first turn of the user, instructions between two turns"
    assert [line for line in run("check").stderr.splitlines() if "leaves out" in line] == [
        f"mappings/first.yaml:6:5: warning: leaves out a second text of the instructions, {unnoticed}",
        f"mappings/pairs.yaml:6:5: warning: leaves out {between}, {unnoticed}",
    ]


@pytest.mark.parametrize(
    ("stop", "warned"),
    [
        ("end", True),
        ("{$match: $.why, length: length, $else: end}", True),
        ("{$match: $.why, length: length, $absent: $nothing, $else: end}", False),
        ("{$when: $.text is present, $value: end}", False),
    ],
)
def test_check_warns_of_a_mapping_that_takes_any_json_for_an_answer(folder: Path, stop: str, warned: bool) -> None:
    (folder / "providers" / "acme.yaml").write_text(GOOD)
    (folder / "mappings").mkdir()
    (folder / "mappings" / "one.yaml").write_text(
        "mapping: one\nresponse:\n  to_hub:\n    parts: [{kind: text, text: $.text}]\n"
        f"    stop: {stop}\n    usage: {{input: $.in, output: $.out}}\n"
    )
    warning = (
        "mappings/one.yaml:5:11: warning: takes any JSON without content, such as an error with status 200, for an "
        "empty answer, and bills it (let it depend on the answer: "
    )
    result = run("check")
    assert (warning in result.stderr) is warned and result.stderr.count("warning:") == warned


def test_check_warns_of_settings_that_have_no_effect_and_are_not_named(folder: Path) -> None:
    """A `$match` without a case for a value, or a `$when` on another one, leaves nothing in the loss list."""
    (folder / "providers" / "acme.yaml").write_text(GOOD)
    (folder / "mappings").mkdir()
    head = "request:\n  from_hub:\n    $refuse: [{when: \"$.turns[*].parts[?(@.kind != 'text')]\", say: text only}]\n"
    asked = (
        "    prompt: '{{ [$.system[*].text | join, $.turns[*].parts[*].text | join] | join }}'\n"
        "    calls: $.tools[*].name\n    roles: $.turns[*].role\n"
    )
    settings = {
        "unread": "",
        "whole": "    choice: $.tool_choice\n    format: $.format\n",
        "named": "    choice: {$match: $.tool_choice.mode, one: $.tool_choice.name, $absent: $nothing, "
        "$else: {$lost: tool_choice}}\n",
        "cases": "    choice: {$match: $.tool_choice.mode, one: $.tool_choice.name, auto: free}\n",
        "condition": "    format: {$when: $.format.kind == 'schema', $value: $.format.schema}\n",
    }
    for name, line in settings.items():
        (folder / "mappings" / f"{name}.yaml").write_text(f"mapping: {name}\n{head}{asked}{line}")
    result = run("check")
    assert (
        "mappings/cases.yaml:4:5: warning: `tool_choice.mode` has no effect where it is none or any, and is not named "
        "as lost (add a case for it, or `$absent: $nothing, $else: {$lost: tool_choice}`)" in result.stderr
    )
    assert (
        "mappings/condition.yaml:4:5: warning: `format.kind` has no effect where it is json, and is not named "
        "as lost (add a case for it, or `$absent: $nothing, $else: {$lost: format}`)" in result.stderr
    )
    assert result.stderr.count("warning:") == 2 and result.exit_code == 0


def test_check_warns_of_losses_of_an_embeddings_request_without_settings(folder: Path) -> None:
    (folder / "providers" / "acme.yaml").write_text(GOOD)
    (folder / "mappings").mkdir()
    (folder / "mappings" / "one.yaml").write_text(
        "mapping: one\nhub: embeddings\nrequest:\n  from_hub:\n    inputs: $.inputs\n"
        '    purpose: {$match: $.kind, query: ask, $else: {$lost: "purpose {{ $.kind }}"}}\n'
        "response: {to_hub: {vectors: $}}\n"
    )
    result = run("check")
    assert "a request without any settings loses purpose (unnamed): every answer reports that" in result.stderr
    assert result.stderr.count("warning:") == 1 and result.exit_code == 0


def test_check_warns_of_losses_beside_content_that_is_carried(folder: Path) -> None:
    (folder / "providers" / "acme.yaml").write_text(GOOD)
    (folder / "mappings").mkdir()
    losing = (
        "mapping: one\nrequest:\n  from_hub:\n"
        "    system: '{{ $.system[*].text | join }}'\n"
        "    tools: [{$each: $t in $.tools, name: $t.name, takes: $t.schema}]\n"
        "    tool_choice: {$match: $.tool_choice.mode, $absent: $nothing, $else: {$lost: tool_choice}}\n"
        "    format: {$match: $.format.kind, $absent: $nothing, $else: {$lost: format}}\n"
        "    talk:\n"
        "      - $each: $t in $.turns\n"
        "        who: $t.role\n"
        "        says:\n"
        "          - $each: $p in $t.parts\n"
        "            $match: $p.kind\n"
        "            text: $p.text\n"
        "            image: {picture: {$first: [$p.data, $p.url]}}\n"
        "            tool_call: {does: $p.name, with: $p.args}\n"
        "            tool_result: {got: '{{ $p.parts[*].text | join }}'}\n"
        "            $else: {$refuse: [{when: true, say: no}]}\n"
    )
    (folder / "mappings" / "one.yaml").write_text(losing)
    result = run("check")
    assert (
        "mappings/one.yaml:4:5: warning: a conversation with a tool call loses turns[].parts[].id: every such answer "
        'reports that (carry it, or list it: harmless: {from_hub: ["turns[].parts[].id"]} under `request:`)'
    ) in result.stderr
    assert "warning: image sent as data loses turns[].parts[].mime: every such answer reports that" in result.stderr
    assert result.stderr.count("warning:") == 2 and result.exit_code == 0

    harmless = "request:\n  harmless: {from_hub: ['turns[].parts[].id', 'turns[].parts[].mime']}\n"
    (folder / "mappings" / "one.yaml").write_text(losing.replace("request:\n", harmless))
    assert "warning:" not in run("check").stderr


def test_check_warns_of_losses_of_a_question_without_settings(folder: Path) -> None:
    (folder / "providers" / "acme.yaml").write_text(GOOD)
    (folder / "mappings").mkdir()
    (folder / "mappings" / "one.yaml").write_text(
        "mapping: one\nrequest:\n  from_hub:\n"
        "    $refuse: [{when: \"$.turns[*].parts[?(@.kind != 'text')]\", say: text only}]\n"
        "    prompt: '{{ [$.system[*].text | join, $.turns[*].parts[*].text | join] | join }}'\n"
        "    choice: {$match: $.tool_choice.mode, one: $.tool_choice.name, $else: {$lost: tool_choice}}\n"
    )
    result = run("check")
    assert (
        "mappings/one.yaml:4:5: warning: a request without any settings loses tool_choice, turns[].role: every "
        "answer reports that (list it under `harmless`, or give its `$match` a case `$absent: $nothing`)"
        in result.stderr
    )


def test_check_warns_of_the_clients_name_of_a_model_and_of_parts_sent_as_they_are(folder: Path) -> None:
    (folder / "providers" / "acme.yaml").write_text(GOOD)
    (folder / "mappings").mkdir()
    head = "request:\n  from_hub:\n    $refuse: [{when: \"$.turns[*].parts[?(@.kind == 'image')]\", say: text only}]\n"
    body = (
        "    model: {model}\n    rules: $.system[*].text\n    choice: $.tool_choice\n    format: $.format\n"
        "    tools: [{{$each: $t in $.tools, name: $t.name, schema: $t.schema}}]\n"
        "    messages:\n      - $each: $t in $.turns\n        role: $t.role\n        content: {content}\n"
    )
    text = '"{{ $t.parts[*].text | join }}"'
    for name, model, content in (
        ("named", "$.model", text),
        ("raw", "$model.upstream", "$t.parts"),
        ("fine", "m", text),
    ):
        (folder / "mappings" / f"{name}.yaml").write_text(
            f"mapping: {name}\n{head}{body.format(model=model, content=content)}"
        )
    said = run("check").stderr
    assert (
        "mappings/named.yaml:4:5: warning: sends the name by which a client asks for the model; its provider knows it "
        "by another (model: $model.upstream)" in said
    )
    assert (
        "mappings/raw.yaml:13:18: warning: sends `parts` as it is in the hub, in whose words no provider reads it "
        "(write each of its fields)\n            content: $t.parts\n                     ^" in said
    )
    assert said.count("sends") == 2


def test_check_warns_of_fields_that_a_format_spells_otherwise(folder: Path) -> None:
    """A misspelt `drop` removes nothing. A name that stands twice, or that is near to none, may be the provider's."""
    (folder / "providers" / "acme.yaml").write_text(
        GOOD
        + """request:
  - drop: [tool_choic, user, own_field, "$.messages[*].nmae"]
  - default: {temperatur: 1, thinking_level: 2}
    when: $.reasoning_efort and $.messages.name
  - set: {strem_options: {include_usage: true}}
  - drop: [strem_options]
errors: {message: $.error.mesage}
usage: {read: {input: $.usage.completion_tokens, output: $.usage.completion_tokens, total: "{{ $.usage.total }} t"}}
"""
    )
    result = run("check")
    assert [line.removeprefix("providers/acme.yaml:") for line in result.stderr.splitlines() if line[:1] == "p"] == [
        "6:12: warning: found the field `tool_choic`, which is nowhere else (did you mean `tool_choice`?)",
        "7:15: warning: found the field `temperatur`, which is nowhere else (did you mean `temperature`?)",
        "8:11: warning: found the field `reasoning_efort`, which is nowhere else (did you mean `reasoning_effort`?)",
        "8:11: warning: found `$.messages.name`, but `messages` is a list (of each of them: $.messages[*].name)",
        "11:19: warning: found the field `mesage`, which is nowhere else (did you mean `message`?)",
        "12:23: warning: usage.read: `input` is read from `completion_tokens`, which by its name counts the output",
        "12:58: warning: usage.read: `output` is read from the field of `input`, so these tokens are counted twice",
        "12:92: warning: usage.read: `total` is a number, found a text",
    ]
    assert result.exit_code == 0


def test_a_warning_about_a_shared_file_is_reported_once(folder: Path) -> None:
    """A shared file is compiled with each provider that names it."""
    (folder / "providers" / "shared").mkdir()
    (folder / "providers" / "shared" / "own.yaml").write_text("""url: https://a.example
speaks: {chat: /c}
define: {"word($c)": {$match: $c, 0: fine, "1": bad, "true": yes, $else: odd}}
response: [{set: {told: "{{ word($.code) }}"}}]
""")
    for name in ("acme", "other"):
        (folder / "providers" / f"{name}.yaml").write_text(f"""provider: {name}
shared: shared/own.yaml
models: {{{name}/one: {{price: {{prompt: "1", completion: "2", unit: 1000000}}}}}}
""")
    result = run("check", "--json")
    found = json.loads(result.stdout)
    assert (result.exit_code, found["errors"], found["warnings"]) == (0, 0, 1)
    assert found["problems"][0]["file"].endswith("shared/own.yaml") and found["problems"][0]["line"] == 3
    assert found["problems"][0]["message"] == "a label is text: `0` does not choose the number 0"


def test_check_reports_a_date_that_does_not_exist(folder: Path) -> None:
    (folder / "providers" / "acme.yaml").write_text("""provider: acme
url: https://a.example
speaks: {chat: /c}
models:
  acme/one: {retires: "2027-02-30", price: {prompt: "1", completion: "2", unit: 1000000}}
""")
    result = run("check", "--json")
    found = [(each["line"], each["column"], each["message"]) for each in json.loads(result.stdout)["problems"]]
    assert found == [(5, 23, 'found "2027-02-30", wanted a day that the calendar has')] and result.exit_code == 1
