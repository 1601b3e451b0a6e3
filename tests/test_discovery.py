"""Providers' own model lists, read in the background: merged into the catalog, kept when a refresh fails, and never
awaited by requests."""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import orjson
import pytest

from support.inprocess import runtime_of
from support.waiting import until
from tollgate.discovery import Discoverer
from tollgate.errors import UpstreamUnreachable
from tollgate.health import Health
from tollgate.reload import Reloader
from tollgate.runtime import RuntimeHolder
from tollgate.upstream import Client

PROVIDER = """
provider: acme
url: app://acme/v1
speaks: {chat: /chat/completions}
headers: {Authorization: "Bearer {{ $secret.ACME_KEY }}"}
models:
  acme/written: {upstream: written, name: Written by hand, price: {prompt: "1", completion: "2"}}
discover:
  url: app://acme/v1/models
  every: 3600
  list: $.data
  model:
    id: acme/{{ $.id }}
    upstream: $.id
    context: $.max_model_len
    price: {prompt: $.cost, completion: $.cost}
"""


class Lists:
    """An upstream whose model list can be changed, broken and held back."""

    def __init__(self) -> None:
        self.models: list[dict] = [{"id": "one", "max_model_len": 1000, "cost": "0.5"}]
        self.status = 200
        self.raw: bytes | None = None
        self.asked = 0
        self.keys: list[str | None] = []
        self.gate: asyncio.Event | None = None

    async def __call__(self, method: str, path: str, headers, body: bytes):
        self.asked += 1
        self.keys.append(headers.get("authorization"))
        if self.gate is not None:
            await self.gate.wait()
        text = self.raw if self.raw is not None else orjson.dumps({"object": "list", "data": self.models})

        async def content() -> AsyncIterator[bytes]:
            yield text

        return self.status, {"content-type": "application/json"}, content()


class Scene:
    def __init__(self, folder: Path, text: str = PROVIDER, environ: dict[str, str] | None = None) -> None:
        (folder / "providers").mkdir()
        (folder / "providers" / "acme.yaml").write_text(text)
        self.folder = folder
        self.environ = {"ACME_KEY": "sk-canary"} if environ is None else environ
        self.lists = Lists()
        self.client = Client(environ={})
        self.client.register_app("acme", self.lists)
        self.holder = RuntimeHolder(runtime_of(folder, self.environ))
        self.health = Health()
        self.swaps: list[object] = []
        self.holder.on_swap = self.swaps.append
        self.discoverer = Discoverer(self.holder, self.client, self.health, spread=lambda: 1.0)

    async def refresh_now(self) -> bool:
        """Refreshes every list, as if it were due."""
        for state in self.discoverer.states.values():
            state.due = 0.0
        return await self.discoverer.refresh()

    def ids(self) -> list[str]:
        return sorted(self.holder.current.catalog.models)


@pytest.fixture
async def scene(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # files have the same names in a reload
    made = Scene(tmp_path)
    yield made
    await made.client.close()


async def test_discovered_models_are_in_the_catalog_with_routes_and_prices(scene):
    assert await scene.discoverer.refresh()
    assert scene.ids() == ["acme/one", "acme/written"]
    route = scene.holder.current.catalog.models["acme/one"].routes[0]
    assert (route.offers[0].model.context, str(route.offers[0].own_tariff.pricing.prices["prompt"])) == (1000, "0.5")
    assert scene.lists.keys == ["Bearer sk-canary"]
    assert scene.swaps == [scene.holder.current]


async def test_a_written_model_wins_over_a_discovered_one(scene):
    scene.lists.models.append({"id": "written", "max_model_len": 5, "cost": "9"})
    await scene.discoverer.refresh()
    assert scene.holder.current.catalog.models["acme/written"].routes[0].model.name == "Written by hand"


PICTURES = """
provider: acme
url: app://acme/v1
speaks: {chat: /chat/completions}
images: {submit: {call: POST app://acme/draw, body: $.input, result: {images: [{url: $.url}]}}}
discover:
  url: app://acme/v1/models
  list: $.data
  model:
    id: acme/{{ $.id }}
    type: $.kind
    price: {$match: $.kind, image: {price: $.cost, currency: $.money}, $else: {prompt: $.cost, currency: $.money}}
"""


async def test_models_whose_currency_has_no_rate_are_left_out_until_it_has_one(tmp_path, monkeypatch, caplog):
    """Each request of such a chat model was a 500, and a picture cost as many USD as it has cost units of the other
    currency."""
    monkeypatch.chdir(tmp_path)
    scene = Scene(tmp_path, PICTURES, {})
    kinds = [("a", "chat", "USD"), ("b", "chat", "EUR"), ("c", "image", "JPY"), ("d", "image", "EUR")]
    scene.lists.models = [{"id": id, "kind": kind, "money": money, "cost": "3"} for id, kind, money in kinds]
    reloader = Reloader(scene.holder, tmp_path, environ={})
    for rates, ids in (("{}", ["acme/a"]), ("{EUR: '1.1'}", ["acme/a", "acme/b", "acme/d"]), ("{}", ["acme/a"])):
        (tmp_path / "gateway.yaml").write_text(f"credits: {{rates: {rates}}}\n")
        assert (await reloader.reload()).ok
        await scene.discoverer.refresh()
        offered = {*scene.ids(), *(offer.model.id for offer in scene.holder.current.images)}
        assert sorted(offered) == ids
    assert "found acme/c with a price in JPY, wanted a currency with a rate: CNY, USD" in caplog.text
    await scene.client.close()


async def test_an_unchanged_list_rebuilds_nothing(scene):
    await scene.discoverer.refresh()
    before = scene.holder.current
    assert not await scene.refresh_now()
    assert scene.holder.current is before
    assert scene.lists.asked == 2


async def test_a_list_is_requested_only_when_due(scene):
    await scene.discoverer.refresh()
    assert not await scene.discoverer.refresh()
    assert scene.lists.asked == 1


@pytest.mark.parametrize(
    ("status", "raw", "words"),
    [
        (500, b"{}", "answered 500"),
        (200, b"<html>", "not JSON"),
        (200, b'{"models": 1}', "not found in the answer"),
        (200, b'{"data": [{"id": "two words"}]}', "canonical id"),
        (
            200,
            b'{"data": [{"name": "one"}, {"name": "two"}]}',
            "found no id for an entry with the fields name, wanted a text",
        ),
    ],
    ids=["a status", "a page", "another shape", "no usable entry", "entries without an id"],
)
async def test_the_last_good_list_is_kept(scene, status, raw, words):
    await scene.discoverer.refresh()
    scene.lists.status, scene.lists.raw = status, raw
    assert not await scene.refresh_now()
    assert "acme/one" in scene.ids()
    state = scene.discoverer.states["acme"]
    assert state.failures == 1
    assert "canary" not in state.problem
    assert words in state.problem


async def test_a_failed_list_is_retried_with_increasing_delays(scene):
    scene.lists.status = 503
    loop = asyncio.get_running_loop()
    waits = []
    for _ in range(4):
        await scene.refresh_now()
        waits.append(scene.discoverer.states["acme"].due - loop.time())
    assert waits == pytest.approx([30, 60, 120, 240], abs=10)
    scene.lists.status = 200
    await scene.refresh_now()
    assert scene.discoverer.states["acme"].problem == ""
    assert scene.discoverer.states["acme"].due - loop.time() == pytest.approx(3600, abs=10)


async def test_a_list_that_cannot_be_processed_does_not_end_the_refreshing(scene, caplog):
    await scene.discoverer.refresh()
    scene.lists.raw = b'{"data": [{"id": "deep", "cost": ' + b"[" * 1000 + b"]" * 1000 + b"}]}"
    assert not await scene.refresh_now()
    assert scene.ids() == ["acme/one", "acme/written"]
    assert "RecursionError" in caplog.text
    assert scene.discoverer.states["acme"].problem
    scene.lists.raw = b'{"data": [{"id": "two", "cost": "1"}]}'
    assert await scene.refresh_now()
    assert scene.ids() == ["acme/two", "acme/written"]


async def test_a_mistake_of_ours_in_a_build_does_not_end_the_refreshing(scene, monkeypatch, caplog):
    def broken(*values, **options):
        raise KeyError("oops")

    await scene.discoverer.refresh()
    scene.lists.models.append({"id": "two", "cost": "0.5"})
    with monkeypatch.context() as patched:
        patched.setattr("tollgate.discovery.build_runtime", broken)
        assert not await scene.refresh_now()
    assert "the models found at acme cannot be used: 'oops'" in caplog.text
    assert (await Reloader(scene.holder, scene.folder, environ=scene.environ).reload()).ok
    assert scene.ids() == ["acme/one", "acme/written"]  # the list before stays, also after a reload
    assert await scene.refresh_now()
    assert scene.ids() == ["acme/one", "acme/two", "acme/written"]


async def test_a_list_that_cannot_be_compiled_is_no_mistake_of_a_reload_meanwhile(scene, caplog):
    """It is in force once it is compiled; until then another provider's list may keep the refresh waiting."""
    needs_limit = PROVIDER.replace("/chat/completions", '"/{{ $model.max_output }}"')
    needs_limit = needs_limit.replace("{upstream: written", "{max_output: 900, upstream: written")
    (scene.folder / "providers" / "acme.yaml").write_text(needs_limit)
    bemo = PROVIDER.replace("acme/{", "bemo/{").replace("acme/w", "bemo/w")
    bemo = bemo.replace("provider: acme", "provider: bemo").replace("app://acme", "app://bemo")
    (scene.folder / "providers" / "bemo.yaml").write_text(bemo)
    slow = Lists()
    slow.gate = asyncio.Event()
    scene.client.register_app("bemo", slow)
    reloader = Reloader(scene.holder, scene.folder, environ=scene.environ)
    assert (await reloader.reload()).ok
    refreshing = asyncio.create_task(scene.discoverer.refresh())
    await until(lambda: scene.discoverer.states.get("acme") is not None and scene.discoverer.states["acme"].at)
    assert (await reloader.reload()).ok
    slow.gate.set()
    assert await refreshing
    assert scene.ids() == ["acme/written", "bemo/one", "bemo/written"]
    assert "the models found at acme cannot be used: " in caplog.text


async def test_a_file_that_a_found_model_does_not_fit_is_reloaded_without_it(scene, caplog):
    """`tollgate check` and a start do not know the list, and have nothing against the file."""
    await scene.discoverer.refresh()
    text = PROVIDER.replace("/chat/completions", '"/{{ $model.max_output }}"')
    text = text.replace("{upstream: written", "{max_output: 900, upstream: written")
    (scene.folder / "providers" / "acme.yaml").write_text(text)
    assert (await Reloader(scene.holder, scene.folder, environ=scene.environ).reload()).ok
    assert (scene.ids(), scene.holder.discovered) == (["acme/written"], {})
    assert "models of their lists do not fit the new files, and are gone: acme" in caplog.messages
    await scene.discoverer.refresh()
    assert "the address is incomplete for acme/one" in scene.discoverer.states["acme"].problem


async def test_models_missing_from_a_list_are_removed(scene):
    await scene.discoverer.refresh()
    scene.lists.models = []
    assert await scene.refresh_now()
    assert scene.ids() == ["acme/written"]


async def test_an_invalid_entry_is_skipped(scene):
    scene.lists.models.append({"id": "two words", "cost": "1"})
    await scene.discoverer.refresh()
    assert scene.ids() == ["acme/one", "acme/written"]
    assert len(scene.discoverer.states["acme"].skipped) == 1


@pytest.mark.parametrize("entry", [{"id": "two\nlines"}, {"id": "end\n"}, {"id": "\x1b[2J"}, {"a\nb": 1}])
async def test_an_entry_writes_no_line_of_its_own_into_the_log(scene, caplog, entry):
    scene.lists.models.append({**entry, "cost": "1"})
    await scene.discoverer.refresh()
    assert scene.ids() == ["acme/one", "acme/written"]
    (message,) = (line for line in caplog.messages if "left out" in line)
    _, second = message.split("\n")
    assert second.isprintable() and "id for an entry with the fields" in second


async def test_skipped_entries_are_logged_when_they_change(scene, caplog):
    caplog.set_level("INFO", "tollgate.discovery")

    async def logged() -> list[str]:
        caplog.clear()
        await scene.refresh_now()
        return [line for line in caplog.messages if "entr" in line]

    assert await logged() == []
    scene.lists.models += [{"id": "two words", "cost": "1"}, {"name": "x", "cost": "1"}]
    (message,) = await logged()
    assert message.startswith("entries in the list of models of acme were left out (2):\n")
    assert "found no id for an entry with the fields name, cost, wanted a text" in message and "two words" in message
    assert "providers/acme.yaml" in message
    assert await logged() == [], "an unchanged list logs nothing"
    scene.lists.models.reverse()
    assert await logged() == [], "another order is not another problem"
    scene.lists.models += [{"id": f"{number} words"} for number in range(10)]
    (message,) = await logged()
    assert message.endswith("\nand 7 more")
    scene.lists.models = [{"id": "one", "max_model_len": 1000, "cost": "0.5"}]
    assert await logged() == ["every entry in the list of models of acme is used again"]


async def test_a_list_over_the_maximum_is_truncated_with_a_warning(scene, monkeypatch, caplog):
    monkeypatch.setattr("tollgate.mapping.provider.discover.MAX_MODELS", 2)
    scene.lists.models = [{"id": f"m{number}", "cost": "1"} for number in range(4)]
    await scene.discoverer.refresh()
    assert scene.ids() == ["acme/m0", "acme/m1", "acme/written"]
    assert "found 4 entries, wanted at most 2: the others are left out" in caplog.text


async def test_discovered_models_without_a_price_are_logged_once_per_list(scene, caplog):
    async def logged() -> list[str]:
        caplog.clear()
        await scene.refresh_now()
        return [line for line in caplog.messages if "price" in line]

    scene.lists.models = [{"id": "paid", "cost": "1"}, {"id": "free", "cost": "0"}]
    assert await logged() == []
    scene.lists.models += [{"id": f"m{number}"} for number in range(5)]
    (message,) = await logged()
    assert message == (
        '5 models in the list of acme have no price, so their tokens cost nothing ("0" in its `discover:` says that '
        "they are free): "
        "acme/m0, acme/m1, acme/m2 and 2 more"
    )
    assert await logged() == []
    scene.lists.models.append({"id": "m5"})
    assert len(await logged()) == 1
    scene.holder.current.catalog.models["acme/m6"] = replace(
        (known := scene.holder.current.catalog.models["acme/m5"]),
        routes=(replace(known.routes[0], provider="another", priority=-1), *known.routes),
    )
    scene.lists.models.append({"id": "m6"})
    assert await logged() == [], "another provider's price is billed"


async def test_a_model_of_the_file_is_not_reported_for_what_the_list_says_of_it(scene, caplog):
    (scene.folder / "providers" / "acme.yaml").write_text(
        PROVIDER.replace("completion: $.cost}", "completion: $.cost, currency: $.in}")
    )
    assert (await Reloader(scene.holder, scene.folder, environ=scene.environ).reload()).ok
    for entry in ({"id": "written"}, {"id": "written", "cost": "1", "in": "XXX"}):
        caplog.clear()
        scene.lists.models = [entry, {"id": "paid", "cost": "1"}]
        await scene.refresh_now()
        assert scene.ids() == ["acme/paid", "acme/written"]
        assert [line for line in caplog.messages if "written" in line] == []


async def test_a_reload_keeps_discovered_models_and_refreshes_only_changed_files(scene):
    await scene.discoverer.refresh()
    reloader = Reloader(scene.holder, scene.folder, environ=scene.environ)
    assert (await reloader.reload()).ok
    assert scene.ids() == ["acme/one", "acme/written"]
    await scene.discoverer.refresh()
    assert scene.lists.asked == 1
    (scene.folder / "providers" / "acme.yaml").write_text(PROVIDER.replace("acme/{{ $.id }}", "acme/new-{{ $.id }}"))
    assert (await reloader.reload()).ok
    await scene.discoverer.refresh()
    assert scene.ids() == ["acme/new-one", "acme/written"]


async def test_a_list_does_not_change_what_a_written_alias_means(tmp_path, monkeypatch, caplog):
    """But an id has precedence over every alias, and then the log says so."""
    monkeypatch.chdir(tmp_path)
    text = PROVIDER.replace("{upstream: written,", "{upstream: written, aliases: [small, acme/latest],")
    scene = Scene(tmp_path, text.replace("context: $.max_model_len", "aliases: $.also"))
    scene.lists.models = [{"id": "a", "cost": "1", "also": ["small", "own"]}]
    await scene.discoverer.refresh()
    names = scene.holder.current.catalog.resolve
    assert (names("small").id, names("own").id, names("acme/latest").id) == ("acme/written", "acme/a", "acme/written")
    assert not caplog.messages
    scene.lists.models.append({"id": "latest", "cost": "1"})
    for _ in range(2):
        await scene.refresh_now()
    assert scene.holder.current.catalog.resolve("acme/latest").id == "acme/latest"
    (message,) = caplog.messages
    assert message.endswith("as an id has precedence: acme/latest (was acme/written)")
    await scene.client.close()


async def test_a_list_that_failed_is_requested_again_after_a_reload(scene):
    """The operator has renewed the key; the next attempt may be an hour away."""
    scene.lists.status = 401
    await scene.discoverer.refresh()
    await scene.discoverer.refresh()
    assert scene.lists.asked == 1
    scene.environ["ACME_KEY"] = "sk-renewed"
    assert (await Reloader(scene.holder, scene.folder, environ=scene.environ).reload()).ok
    scene.lists.status = 200
    await scene.discoverer.refresh()
    assert (scene.ids(), scene.health.alarms()) == (["acme/one", "acme/written"], [])
    assert scene.lists.keys == ["Bearer sk-canary", "Bearer sk-renewed"]


async def test_a_provider_added_by_a_reload_is_discovered_soon(scene):
    reloader = Reloader(scene.holder, scene.folder, environ=scene.environ)
    running = asyncio.ensure_future(scene.discoverer.run())
    try:
        await until(lambda: "acme/one" in scene.ids())
        another = PROVIDER.replace("provider: acme", "provider: bemo").replace("acme/", "bemo/")
        (scene.folder / "providers" / "bemo.yaml").write_text(another.replace("app://bemo/", "app://acme/"))
        assert (await reloader.reload()).ok
        await until(lambda: "bemo/one" in scene.ids())  # the next refresh of `acme` is due in an hour
    finally:
        running.cancel()


async def test_a_reload_without_the_list_removes_its_models(scene):
    await scene.discoverer.refresh()
    (scene.folder / "providers" / "acme.yaml").write_text(PROVIDER[: PROVIDER.index("discover:")])
    assert (await Reloader(scene.holder, scene.folder, environ=scene.environ).reload()).ok
    assert scene.ids() == ["acme/written"]


async def test_the_list_of_a_disabled_provider_is_not_requested(tmp_path):
    scene = Scene(tmp_path, environ={})
    assert not await scene.discoverer.refresh()
    assert scene.lists.asked == 0
    await scene.client.close()


async def test_models_of_a_disabled_provider_are_removed(scene):
    await scene.discoverer.refresh()
    scene.environ.clear()
    reloader = Reloader(scene.holder, scene.folder, environ=scene.environ)
    await reloader.reload()
    await scene.discoverer.refresh()
    assert scene.ids() == []
    assert scene.discoverer.states == {}


async def test_a_list_is_requested_with_the_provider_s_authorisation(tmp_path):
    signature = "\"{{ $call.path | hmac('md5', $secret.ACME_KEY) }}\""
    auth = f"auth: {{kind: signed, adds: {{headers: {{Authorization: {signature}}}}}}}"
    text = PROVIDER.replace('headers: {Authorization: "Bearer {{ $secret.ACME_KEY }}"}', auth)
    scene = Scene(tmp_path, text, {"ACME_KEY": "k"})
    await scene.discoverer.refresh()
    assert scene.lists.keys == [hmac.new(b"k", b"/v1/models", "md5").hexdigest()]
    assert "acme/one" in scene.ids()


async def test_a_list_that_refuses_our_key_raises_the_alarm_of_a_request_until_it_is_read_again(scene, caplog):
    def alarms():
        return [(name, alarm.kind, alarm.message) for name, alarm in scene.health.alarms()]

    for status in (401, 403, 403):
        scene.lists.status = status
        await scene.refresh_now()
        await scene.discoverer.refresh()
    assert alarms() == [("acme", "key", "the list's address answered 403")]
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == [
        "provider acme: our key there is refused (the list's address answered 401)"
    ]
    assert not scene.health.cooling_until("acme/one", "acme"), "requests may be allowed"
    scene.lists.status = 500
    await scene.refresh_now()
    assert len(alarms()) == 1
    scene.lists.status = 200
    await scene.refresh_now()
    assert alarms() == []


async def test_a_good_list_ends_no_alarm_of_requests(scene):
    await scene.discoverer.refresh()
    scene.health.failed("acme/one", "acme", "upstream_failed", "no money", alarm="balance")
    await scene.refresh_now()
    assert [alarm.kind for _, alarm in scene.health.alarms()] == ["balance"]


async def test_a_list_is_requested_by_the_provider_s_proxy_and_with_its_certificates(tmp_path, monkeypatch):
    (tmp_path / "own.pem").write_text("")
    network = "proxy: http://proxy.example:3128\nverify_tls: false\nca_file: ../own.pem\n"
    scene = Scene(tmp_path, PROVIDER + network)
    calls = []

    async def refused(call):
        calls.append(call)
        raise UpstreamUnreachable("no")

    monkeypatch.setattr(scene.client, "open", refused)
    await scene.discoverer.refresh()
    [call] = calls
    assert (call.url, call.connection[:2]) == ("app://acme/v1/models", ("http://proxy.example:3128", False))
    assert Path(call.connection.ca_file).resolve() == tmp_path / "own.pem"


def paged_scene(folder: Path, next_page: str) -> Scene:
    """A scene whose list is paged: `next_page` is its `next:`."""
    return Scene(folder, PROVIDER.replace("  list: $.data\n", f"  list: $.data\n  next: {next_page}\n"))


async def pages(method: str, path: str, headers, body: bytes):
    """A list of three pages."""
    number = int(path.partition("page=")[2] or 1)
    entry = {"id": f"m{number}", "max_model_len": 1000, "cost": "0.5"}
    after = {1: "2", 2: "3"}.get(number)
    content_of_page = {"data": [entry], "after": after, "same": path, "away": "https://elsewhere.example/v1/models"}

    async def content() -> AsyncIterator[bytes]:
        yield orjson.dumps(content_of_page)

    return 200, {"content-type": "application/json"}, content()


@pytest.mark.parametrize(
    ("next_page", "found"),
    [
        ('"app://acme/v1/models?page={{ $.after }}"', ["acme/m1", "acme/m2", "acme/m3"]),
        ("\"{{ 'app://acme' ~ $.same }}\"", ["acme/m1"]),
        ("$.none", ["acme/m1"]),
    ],
    ids=["to the end", "in a circle", "one page"],
)
async def test_a_paged_list_is_read_to_its_end(tmp_path, next_page, found):
    scene = paged_scene(tmp_path, next_page)
    scene.client.register_app("acme", pages)
    await scene.discoverer.refresh()
    assert [model for model in scene.ids() if model != "acme/written"] == found


async def test_a_list_s_next_page_on_another_host_is_not_requested(tmp_path):
    scene = paged_scene(tmp_path, "$.away")
    scene.client.register_app("acme", pages)
    await scene.discoverer.refresh()
    assert "another host" in scene.discoverer.states["acme"].problem


async def test_a_list_that_hangs_delays_nothing(scene):
    scene.lists.gate = asyncio.Event()
    task = asyncio.create_task(scene.discoverer.run())
    await until(lambda: scene.lists.asked)
    assert scene.ids() == ["acme/written"]
    scene.lists.gate.set()
    await until(lambda: "acme/one" in scene.ids())
    task.cancel()
    assert scene.ids() == ["acme/one", "acme/written"]
