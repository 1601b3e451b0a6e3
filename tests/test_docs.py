"""README.md and docs/ match the code: tables are complete, snippets run, links resolve."""

from __future__ import annotations

import ast
import importlib
import json
import re
import shlex
import shutil
import subprocess
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from urllib.parse import unquote

import click
import duckdb
import pytest
import yaml

from support.inprocess import write_config
from support.places import ROOT
from support.running import gateway
from tollgate import endpoints, server
from tollgate.cli import COMMANDS, main
from tollgate.config.build import load_gateway
from tollgate.config.can_words import words_read
from tollgate.config.gateway_schema import gateway_schema
from tollgate.config.image_schema import PRICE_KEYS
from tollgate.config.load import read_text
from tollgate.config.provider_schema import provider_schema
from tollgate.ledger.usage_row import create_table
from tollgate.mapping import run_examples
from tollgate.mapping.provider import run_provider_examples
from tollgate.mapping.provider.polling import JobAnswer
from tollgate.runtime import build_runtime

pytestmark = pytest.mark.usefixtures("shipped_mappings")

README = (ROOT / "README.md").read_text("utf-8")
BUILDING = (ROOT / "docs" / "building.md").read_text("utf-8")
PROVIDER_FILE = (ROOT / "docs" / "provider-file.md").read_text("utf-8")
PAGES = [ROOT / "README.md", ROOT / "bench" / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def table(text: str, first: str) -> list[list[str]]:
    """The rows of the table whose first heading is `first`, without its heading."""
    lines = text.split(f"\n| {first} |", 1)[1].splitlines()[2:]
    rows = []
    for line in lines:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip("|").split(" | ")])
    return rows


# -- README: tables
# ---------------------------------------------------------------------------------------------------


def test_the_readme_lists_exactly_the_endpoints():
    written: dict[str, set[str]] = {}
    for row in table(README, "endpoint"):
        for methods, path in re.findall(r"`([A-Z, ]+) (/[^`]*)`", row[0]):
            written.setdefault(path, set()).update(methods.split(", "))
    served = {path: set(route.methods) for path, route in endpoints.ROUTES.items()}
    served |= {prefix + "{id}": set(route.methods) for prefix, route in endpoints._WITH_ARGUMENT}
    mounted = re.findall(r'\.mount\("([^"]+)"', (ROOT / "src/tollgate/server.py").read_text("utf-8"))
    assert set(written) == set(served) | set(mounted)
    assert {path: methods for path, methods in written.items() if path in served} == served


def test_the_readme_lists_exactly_the_commands():
    assert [re.findall(r"`tollgate (\w+)`", row[0]) for row in table(README, "command")] == [
        [name] for name in _in_readme_order()
    ]


def _in_readme_order() -> list[str]:
    written = re.findall(r"^\| `tollgate (\w+)`", README, re.MULTILINE)
    assert sorted(written) == sorted(COMMANDS)
    return written


def test_the_readme_lists_settings_with_their_defaults():
    keys = gateway_schema()["properties"]
    shown = {
        "32 MiB": 33554432,
        "`127.0.0.1:8787`": ["127.0.0.1:8787"],
        "30": 30,
        "3": 3,
        "12": 12,
        "0": 0,
        "`var`": "var",
        "`usage`": "usage",
        "`hypercorn`": "hypercorn",
        "0.01": "0.01",
        "5": "5",
        "none": [],
    }
    for row in table(README, "setting"):
        names = re.findall(r"`([\w.]+)`", row[0])
        if names == ["timeouts"]:
            budgets = re.findall(r"`(\w+)`", row[2])
            assert [keys["timeouts"]["properties"][name]["default"] for name in budgets] == [
                float(each) for each in row[1].removesuffix(" s").split(", ")
            ]
            continue
        for name, default in zip(names, row[1].split(", "), strict=True):
            assert _at(keys, name)["default"] == shown[default], name
    assert keys["server"]["properties"]["max_small_body_bytes"]["default"] == 4 * 1024 * 1024
    assert keys["secrets_dir"]["default"] == "secrets"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd")
def test_systemd_accepts_the_unit_of_the_readme_and_rates_it_secure(tmp_path):
    (unit,) = re.findall(r"```ini\n(.*?)```", README, re.DOTALL)
    file = tmp_path / "tollgate.service"
    file.write_text(unit.replace("/srv/tollgate/.venv/bin/tollgate serve", "/bin/true").replace("User=tollgate\n", ""))
    for words in (["verify", "--man=no"], ["security", "--offline=true", "--threshold=25"]):
        done = subprocess.run(["systemd-analyze", *words, str(file)], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "nknown" not in done.stderr, "an unknown setting is only a warning"


def _at(keys: dict, name: str) -> dict:
    block, _, key = name.partition(".")
    found = keys[block]
    if key:
        found = (
            found["properties"]
            if "properties" in found
            else next(each["properties"] for each in found["anyOf"] if "properties" in each)
        )
        found = found[key]
    return found


def test_the_readme_lists_exactly_our_headers():
    sent = {
        name
        for path in (ROOT / "src").rglob("*.py")
        for name in re.findall(r"x-tollgate-[a-z-]+", path.read_text("utf-8"))
    }
    assert sent == {name for row in table(README, "header") for name in re.findall(r"x-tollgate-[a-z-]+", row[0])}


# -- docs/troubleshooting.md ------------------------------------------------------------------------------------------


NOT_IN_A_HEADER = (
    "address_taken",
    "config_invalid",  # stops a start
    "context_length_exceeded",  # in bodies only, as defined by the APIs
    "form_refused",  # a page, not an API error
    "upstream_error",  # replaced by a more specific word
)


def test_troubleshooting_lists_exactly_the_error_words_of_the_code():
    files = [path for path in (ROOT / "src").rglob("*.py") if path.parent.name != "sandbox"]
    source = "\n".join(path.read_text("utf-8") for path in files)
    listed = [
        word
        for row in table((ROOT / "docs" / "troubleshooting.md").read_text("utf-8"), "word")
        for word in re.findall(r"`(\w+)`", row[0])
    ]
    in_code = set(re.findall(r'\bcode(?:: str)? ?= ?"(\w+)"', source))
    assert [word for word in listed if word not in in_code] == []
    assert sorted(in_code - set(listed)) == sorted(NOT_IN_A_HEADER)


# -- docs/conversion.md -----------------------------------------------------------------------------------------------


def test_conversion_lists_exactly_the_words_of_can():
    gateway = load_gateway(ROOT / "gateway.yaml", environ={}, everything=True).gateway
    words = [row[0].strip("`") for row in table((ROOT / "docs" / "conversion.md").read_text("utf-8"), "word")]
    assert words == sorted(words_read(gateway))


# -- README: commands and snippets
# ------------------------------------------------------------------------------------


def test_the_readme_s_two_commands_are_self_contained():
    start, tests = blocks(README, "sh")[:2]
    assert start.startswith("python3 -m venv ") and start.endswith("tollgate serve\n")
    between = re.search(r"^<!-- tests -->\n(.*?)^<!-- end -->$", README, re.DOTALL | re.MULTILINE)
    assert between and blocks(between[1], "sh") == [tests]
    assert (
        tests.startswith("python3 -m venv ")
        and tests.endswith("-m pytest -n 3 --dist worksteal\n")
        and "\n" not in tests.strip()
    )
    assert '"${' not in tests and "README.md" in (ROOT / ".ci" / "run").read_text("utf-8")


def test_a_start_names_providers_that_are_off_unless_they_are_many(tmp_path, caplog):
    path = write_config(
        tmp_path,
        providers={
            name: f"provider: {name}\nspeaks: chat\nurl: https://{name}.example/v1\nheaders: {{a: "
            f"$secret.UNSET_{name}}}\n"
            for name in ("one", "two")
        },
    )
    with caplog.at_level("INFO", "tollgate"):
        server.load(path, {})
    assert [record.message for record in caplog.records if "off" in record.message] == [
        (
            f"2 of {len(list((tmp_path / 'providers').glob('*.yaml')))} providers are off, because a secret is not set "
            "(`tollgate check` names it): one, two"
        )
    ]
    caplog.clear()
    with caplog.at_level("INFO", "tollgate"):
        server.load(ROOT / "gateway.yaml", {})
    [line] = [record.message for record in caplog.records if "off" in record.message]
    assert line.endswith("providers are off, because a secret is not set (`tollgate check` names it)")


def test_the_python_snippets_of_the_readme_run(tmp_path):
    write_config(tmp_path)
    snippets = blocks(README, "python")
    assert len(snippets) == 2
    with gateway(tmp_path) as started:
        for snippet in snippets:
            code = ast.parse(snippet.replace("http://127.0.0.1:8787", started.base).replace("sk-tg-...", started.key))
            code.body[-1] = ast.copy_location(
                ast.Assign([ast.Name("answer", ast.Store())], code.body[-1].value), code.body[-1]
            )
            names: dict = {}
            exec(compile(ast.fix_missing_locations(code), "README.md", "exec"), names)  # noqa: S102 - our own page
            assert "You said: Hello" in names["answer"].model_dump_json()


def test_the_sql_statement_of_the_readme_runs(tmp_path):
    (tmp_path / "2026-11-21").mkdir()
    with duckdb.connect(tmp_path / "2026-11-21" / "14.duckdb") as file:
        file.execute("CREATE TABLE usage AS SELECT 'a/b' AS model, 0.5::DECIMAL(38, 12) AS cost")
    statement = blocks(README, "sql")[0].replace("'usage/", f"'{tmp_path}/")
    with duckdb.connect() as reader:
        assert [row[:2] for row in reader.execute(statement).fetchall()] == [("a/b", 1)]


def test_the_queries_of_the_usage_page_return_what_they_describe():
    queries = [text for text in blocks((ROOT / "docs" / "usage.md").read_text("utf-8"), "sql") if text.startswith("--")]
    prices = '{"prompt":"3","completion":"9","input_cache_read":"0.5","unit":1000000}'
    per_token = '{"prompt":"0.000000003","completion":"0.000000009","input_cache_read":"0.0000000005"}'
    with duckdb.connect() as reader:
        reader.execute(create_table("usage"))
        for number, more in enumerate(
            (
                {"metadata": '{"feature":"search"}', "lost": "seed; user (too long, cut)", "prices": per_token},
                {"attempts": 2, "ttfb_ms": 900.0, "earlier_attempts": '[{"provider":"b","error":"upstream_failed"}]'},
                {"outcome": "client_gone", "estimated": True},
            )
        ):
            values = {
                "request_id": f"req_{number}",
                "account_id": "alice",
                "key_id": "key_1",
                "endpoint": "chat",
                "time": datetime(2026, 11, 21),
                "model": "a/b",
                "provider": "a",
                "attempts": 1,
                "outcome": "ok",
                "cost": "0.25",
                "rate": 1,
                "cache_read_tokens": 1000,
                "prices": prices,
                "price_rule": "base",
                "estimated": False,
                "seq": number,
                "ttfb_ms": 100.0,
                "total_ms": 1000.0,
            } | more
            reader.execute(
                f"INSERT INTO usage ({', '.join(values)}) VALUES ({', '.join('?' * len(values))})",
                list(values.values()),
            )
        results = [reader.execute(query).fetchall() for query in queries]
    results[5].sort()
    assert results == [
        [(date(2026, 11, 21), "key_1", "a/b", Decimal("0.75"))],
        [("a", 100.0, 100.0, 1000.0)],
        [("a/b", 3, 1, 1, 0, Decimal("0.25"))],
        [("b", 1, 1, "upstream_failed"), ("a", 3, 0, None)],
        [(None, 2, Decimal("0.50")), ("search", 1, Decimal("0.25"))],
        [("a", "seed", 1), ("a", "user (too long, cut)", 1)],
        [("a/b", pytest.approx(0.0050025))],
        [("alice", Decimal("0.75"), Decimal("0.25"))],
    ]


def test_the_provider_of_the_readme_loads(tmp_path):
    runtime = _loaded(tmp_path, blocks(README, "yaml")[0], ACME_API_KEY="x")
    assert set(runtime.providers) == {"acme"} and "acme/large" in runtime.catalog.models


def test_the_image_providers_of_the_docs_load(tmp_path):
    first, second, *_ = blocks((ROOT / "docs" / "images.md").read_text("utf-8"), "yaml")
    runtime = _loaded(tmp_path, first, ACME_KEY="x")
    assert runtime.catalog.models["acme/draw"].type == "image"
    (tmp_path / "providers" / "acme.yaml").unlink()
    runtime = _loaded(tmp_path, second, name="bemo", BEMO_KEY="x")
    assert [step.name for offer in runtime.images for step in offer.before] == ["prepare", "upload"]


def test_the_wire_format_of_the_docs_loads_and_its_examples_pass(tmp_path):
    [mapping] = [
        text
        for text in blocks((ROOT / "docs" / "providers.md").read_text("utf-8"), "yaml")
        if "\nmapping: zorp\n" in text
    ]
    (tmp_path / "mappings").mkdir()
    (tmp_path / "mappings" / "zorp.yaml").write_text(mapping)
    runtime = _loaded(
        tmp_path,
        "provider: acme\nurl: https://x.example\nspeaks: {chat: {path: /talk, mapping: zorp}}\n"
        'models: {acme/one: {price: {prompt: "1", completion: "1", unit: 1000000}}}\n',
    )
    zorp = runtime.mappings["zorp"]
    assert (
        not zorp.warnings
        and run_examples(zorp, runtime.mappings, read_text(mapping, "zorp.yaml").root.get("examples")) == []
    )


def test_the_provider_of_the_docs_with_a_shared_file_loads(tmp_path):
    texts = blocks((ROOT / "docs" / "providers.md").read_text("utf-8"), "yaml")
    [shared] = [text for text in texts if text.startswith("# providers/shared/acme.yaml\n")]
    [own] = [text for text in texts if "\nprovider: acme-eu\n" in text]
    (tmp_path / "providers" / "shared").mkdir(parents=True)
    (tmp_path / "providers" / "shared" / "acme.yaml").write_text(shared)
    [offer] = _loaded(tmp_path, own, name="acme-eu", ACME_EU_KEY="x").providers["acme-eu"].offers["acme/large"]
    assert offer.model.context == 131072 and offer.model.price is not None


def test_the_polled_provider_of_the_docs_loads_and_its_examples_pass(tmp_path):
    texts = blocks((ROOT / "docs" / "providers.md").read_text("utf-8"), "yaml")
    [provider] = [text for text in texts if "\nprovider: queue\n" in text]
    [mapping] = [text for text in texts if "\nmapping: predictions\n" in text]
    for name, text in (("providers/queue.yaml", provider), ("mappings/predictions.yaml", mapping)):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    loaded = load_gateway(write_config(tmp_path, sandbox=False), environ={"QUEUE_KEY": "x"})
    runtime = build_runtime(loaded)
    read = runtime.mappings["predictions"]
    assert (
        not read.warnings
        and run_examples(read, runtime.mappings, read_text(mapping, "predictions.yaml").root.get("examples")) == []
    )
    [offer] = runtime.providers["queue"].offers["queue/talker"]
    assert (
        offer.polling is not None
        and offer.polling.again.address(JobAnswer({"id": "a/b"}, {}), {}, {})
        == "https://api.queue.example/v1/predictions/a%2Fb"
    )


def test_the_signing_provider_of_the_docs_loads_and_its_examples_pass(tmp_path):
    texts = blocks((ROOT / "docs" / "providers.md").read_text("utf-8"), "yaml")
    [provider] = [text for text in texts if "\nprovider: signing\n" in text]
    (tmp_path / "providers").mkdir()
    (tmp_path / "providers" / "signing.yaml").write_text(provider)
    path = write_config(tmp_path, sandbox=False)
    compiled = build_runtime(load_gateway(path, environ={}, everything=True), everything=True).providers["signing"]
    assert len(compiled.config.examples.items) == 1 and run_provider_examples(compiled) == []


def test_the_cache_mark_of_the_docs_is_for_requests_without_marks(tmp_path):
    texts = blocks((ROOT / "docs" / "providers.md").read_text("utf-8"), "yaml")
    [edit] = [text for text in texts if "default: {cache_control" in text]
    marked = "{role: user, content: [{type: text, text: Hi, cache_control: {type: ephemeral}}]}"
    plain = "{role: user, content: Hi}"
    text = (
        "provider: acme\nurl: https://acme.example\nspeaks: {messages: /v1/messages}\nmodels: {acme/a: {}}\n"
        f"{edit}examples:\n"
        f"  - {{of: request, given: {{messages: [{marked}]}}, expect: {{messages: [{marked}]}}}}\n"
        f"  - of: request\n    given: {{messages: [{plain}]}}\n"
        f"    expect: {{messages: [{plain}], cache_control: {{type: ephemeral}}}}\n"
    )
    path = write_config(tmp_path, providers={"acme": text}, sandbox=False)
    provider = build_runtime(load_gateway(path, environ={}, everything=True), everything=True).providers["acme"]
    assert len(provider.config.examples.items) == 2 and run_provider_examples(provider) == []


def _loaded(folder: Path, provider: str, name: str = "acme", **secrets: str):
    path = write_config(folder, providers={name: provider}, sandbox=False)
    loaded = load_gateway(path, environ=secrets)
    assert not loaded.warnings
    return build_runtime(loaded)


# -- docs/provider-file.md, docs/building.md
# -------------------------------------------------------------------------------------------------


def test_the_example_with_all_provider_keys_loads(tmp_path):
    (tmp_path / "providers" / "models").mkdir(parents=True)
    (tmp_path / "providers" / "models" / "acme.yaml").write_text("models:\n  acme/more: {}\n")
    (tmp_path / "providers" / "shared").mkdir()
    (tmp_path / "providers" / "shared" / "acme.yaml").write_text("policies:\n  - {match: acme/more, priority: 3}\n")
    (tmp_path / "providers" / "acme.pem").write_text("")
    runtime = _loaded(tmp_path, blocks(PROVIDER_FILE, "yaml")[0], ACME_KEY="1", ACME_PROJECT="2", A="3", B="4")
    assert {"acme/large", "acme/embed", "acme/draw", "acme/more"} <= set(runtime.catalog.models)


def test_the_example_has_every_key_of_a_provider_file():
    schema, example = provider_schema(), yaml.safe_load(blocks(PROVIDER_FILE, "yaml")[0])
    kinds, models = schema["$defs"], example["models"].values()
    only_images = set(PRICE_KEYS)
    wanted = {
        "provider": (schema["properties"], [example]),
        "speaks": (
            kinds["endpoint"]["properties"],
            [each for each in example["speaks"].values() if isinstance(each, dict)],
        ),
        "policies": (schema["properties"]["policies"]["items"]["properties"], example["policies"]),
        "errors": (kinds["errors"]["properties"], [example["errors"]]),
        "usage": (kinds["usage"]["properties"], [example["usage"]]),
        "timeouts": (schema["properties"]["timeouts"]["properties"], [example["timeouts"]]),
        "models": (kinds["model"]["properties"], models),
        "price": (
            {key: each for key, each in kinds["price"]["properties"].items() if key not in only_images},
            [each["price"] for each in models if "price" in each],
        ),
        "images": (schema["properties"]["images"]["properties"].keys() - {"give_up"}, [example["images"]]),
        "images steps": (
            schema["properties"]["images"]["properties"]["poll"]["properties"],
            example["images"].values(),
        ),
        "discover": (schema["properties"]["discover"]["properties"], [example["discover"]]),
    }
    for name, (keys, written) in wanted.items():
        assert set(keys) <= {key for each in written for key in each}, name


def test_docs_images_has_every_key_of_an_image_price():
    page = (ROOT / "docs" / "images.md").read_text("utf-8")
    assert [key for key in PRICE_KEYS if not re.search(rf"\b{key}\b", page)] == []


def test_building_names_every_module():
    mentioned = set(re.findall(r"\w+", " ".join(re.findall(r"`([^`\n]+)`", BUILDING))))
    modules = [path for path in (ROOT / "src" / "tollgate").rglob("*.py") if not path.stem.startswith("__")]
    assert [relative(path) for path in modules if path.stem not in mentioned] == []


def test_every_module_that_building_lists_exists():
    listed = BUILDING.split("## The modules, package by package", 1)[1]
    modules = {path.stem for path in (ROOT / "src" / "tollgate").rglob("*.py")}
    assert [word for word in re.findall(r"`([a-z_0-9]+)`", listed) if word not in modules] == []


def test_every_place_in_where_to_change_what_exists():
    package = ROOT / "src" / "tollgate"
    for row in table(BUILDING, "to change"):
        for word in re.findall(r"`([\w./<>{}-]+?)(?:: \w+)?`", " ".join(row)):
            if (
                "<" in word
                or not re.search(r"[/.]", word)
                or "." in word.strip(".")
                and "/" not in word
                and not word.endswith((".py", ".md", ".yaml"))
            ):
                continue
            places = [ROOT / word, package / word, package / "config" / word]
            assert any(place.exists() for place in places), word


# -- every page -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES, ids=relative)
def test_links_resolve(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text("utf-8")):
        if not target.startswith(("http:", "https:", "#")):
            assert (page.parent / unquote(target.partition("#")[0])).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=relative)
def test_mentioned_files_exist(page):
    for word in re.findall(r"`((?:docs|bench|tests|src|providers|mappings)/[\w./-]*\w)`", page.read_text("utf-8")):
        assert (ROOT / word).exists(), word


@pytest.mark.parametrize("page", PAGES, ids=relative)
def test_inline_keys_and_values_are_valid_yaml(page):
    text = re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)
    for word in re.findall(r"`([^`]+)`", text):
        if re.match(r"[a-z_$][\w$]*: *[\[{\"$]", word):
            assert isinstance(yaml.safe_load(word.replace("\\|", "|")), dict), word


def _commands(page: Path) -> list[str]:
    text = page.read_text("utf-8")
    found = re.findall(r"`(tollgate [^`\n]+)`", text)
    for block in re.findall(r"^```\w*\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
        found += [line.partition("  #")[0] for line in block.splitlines() if line.startswith("tollgate ")]
    return found


def test_modules_mentioned_in_docstrings_and_comments_exist():
    sources = [path for part in ("src", "tests", "bench") for path in sorted((ROOT / part).rglob("*.py"))]
    existing = [path.as_posix() for path in sources]
    stale = {
        f"{relative(path)}: {word}"
        for path in sources
        for word in re.findall(r"`([\w/]+\.py)`", path.read_text("utf-8"))
        if not any(each.endswith(f"/{word}") for each in existing)
    }
    assert not stale


@pytest.mark.parametrize("page", PAGES, ids=relative)
def test_mentioned_commands_and_options_exist(page):
    for line in _commands(page):
        words = shlex.split(re.sub(r"[\[\]]", " ", line))[1:]
        command: click.Command = main
        while isinstance(command, click.Group) and words and not words[0].startswith("-"):
            name = words.pop(0)
            if command is main:
                assert name in COMMANDS, line
                command = importlib.import_module(COMMANDS[name][0]).command
            else:
                assert name in command.commands, line
                command = command.commands[name]
        known = {option for each in command.params for option in each.opts} | {"--help", "--version"}
        assert [word for word in words if word.startswith("--") and word not in known] == [], line


# -- what must not occur anywhere
# -------------------------------------------------------------------------------------

TEXTS = ("README.md", "gateway.yaml", "pyproject.toml", ".ci", "docs", "bench", "providers", "mappings", "src", "tests")
MACHINE_PATH = re.compile(r"(?<![\w.{}/-])/(?:work|root|tmp|home/\w+)/")
REGISTRY = re.compile(
    r"p[y]pi\.|pytho[n]hosted|npmj[s]\.|crate[s]\.io/|proxy\.gola[n]g|--(?:extra-)?index-ur[l]|--find-link[s]"
)


def _is_generated(path: Path) -> bool:
    return any(part.startswith((".", "__pycache__")) for part in path.parts)


def _texts() -> list[Path]:
    found = []
    for name in TEXTS:
        place = ROOT / name
        found += (
            [place]
            if place.is_file()
            else [
                path
                for path in sorted(place.rglob("*"))
                if path.is_file() and not _is_generated(path.relative_to(place))
            ]
        )
    return [
        path
        for path in found
        if path.suffix in {"", ".md", ".py", ".yaml", ".yml", ".toml", ".json", ".html", ".css", ".js", ".txt"}
    ]


def test_no_path_of_a_machine_and_no_registry_is_mentioned():
    """Tests may contain made-up paths; other files may not."""
    wrong = []
    for path in _texts():
        text = path.read_text("utf-8", "replace")
        if path.is_relative_to(ROOT / "tests"):
            found = REGISTRY.search(text)
        else:
            found = MACHINE_PATH.search(text) or REGISTRY.search(text)
        if found:
            wrong.append(f"{relative(path)}: {found[0]}")
    assert not wrong


def test_the_schema_of_each_file_in_a_starter_set_exists(tmp_path):
    """`tollgate init` promises schemas to editors: the first line of each file names one."""
    from click.testing import CliRunner

    assert CliRunner().invoke(main, ["init", str(tmp_path)]).exit_code == 0
    for path in [tmp_path / "gateway.yaml", *sorted((tmp_path / "providers").rglob("*.yaml"))[:5]]:
        for target in re.findall(r"\$schema=(\S+)", path.read_text("utf-8")):
            assert any((base / target).exists() for base in (path.parent, tmp_path)), f"{path.name}: {target}"
            json.loads(
                next(base / target for base in (path.parent, tmp_path) if (base / target).exists()).read_text("utf-8")
            )
    shutil.rmtree(tmp_path)
