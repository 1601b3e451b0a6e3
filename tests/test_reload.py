"""A changed file takes effect by itself; a bad one changes nothing and says where it is wrong."""

import asyncio
import errno
import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from support.inprocess import inprocess, replying
from tollgate.reload import Reloader

ACME = """
provider: acme
speaks: chat
url: app://acme/chat
models:
  acme/one: {upstream: up-1, context: 1000, max_output: 100, price: {prompt: "1", completion: "1", unit: 1000000, currency: USD}}
"""  # noqa: E501
ASK = {"model": "acme/two", "messages": [{"role": "user", "content": "hi"}]}
ANSWER = b'{"id":"c","choices":[{"index":0,"message":{"role":"assistant","content":"x"},"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":1}}'  # noqa: E501


async def test_a_new_model_is_served_after_a_reload_and_unchanged_files_are_not_compiled_again(tmp_path):
    async with inprocess(tmp_path, providers={"acme": ACME}, apps={"acme": replying(body=ANSWER)}) as here:
        assert (await here.post("/v1/chat/completions", ASK)).status_code == 400
        before = here.services.runtime.current
        (tmp_path / "providers" / "acme.yaml").write_text(ACME.replace("acme/one", "acme/two"))
        state = await here.opened.reloader.reload()
        assert state.ok and state.count == 1
        assert (await here.post("/v1/chat/completions", ASK)).status_code == 200
        after = here.services.runtime.current
        assert after is not before and after.mappings["chat"] is before.mappings["chat"]
        assert (
            after.providers["sandbox"] is before.providers["sandbox"]
            and after.providers["acme"] is not before.providers["acme"]
        )


async def test_a_base_url_that_is_written_stays_after_a_reload_though_it_is_the_default_one(tmp_path):
    """As where a container's port 9000 is the machine's 8787."""
    written = "server: {bind: 0.0.0.0:9000, base_url: 'http://127.0.0.1:8787'}\n"
    async with inprocess(tmp_path, providers={"acme": ACME}, settings=written) as here:
        assert (await here.opened.reloader.reload()).ok
        assert here.services.runtime.current.gateway.server.base_url == "http://127.0.0.1:8787"


async def test_a_bad_file_leaves_the_running_configuration_and_names_the_place(tmp_path):
    async with inprocess(tmp_path, providers={"acme": ACME}) as here:
        before = here.services.runtime.current
        bad = ACME.replace("url: app", "urll: app") + "request: [{renmae: {a: b}}]\n"
        (tmp_path / "providers" / "acme.yaml").write_text(bad)
        state = await here.opened.reloader.reload()
        assert not state.ok and here.services.runtime.current is before
        said = "\n".join(problem.render() for problem in state.problems)
        assert "acme.yaml:4:1" in said and "did you mean `url`?" in said
        assert "unknown edit `renmae`" in said, "what does not compile, beside what does not load"
        assert "\ntollgate_config_current 0.0\n" in (await here.get("/metrics")).text
        (tmp_path / "providers" / "acme.yaml").write_text(ACME)
        assert (await here.opened.reloader.reload()).ok
        assert "\ntollgate_config_current 1.0\n" in (await here.get("/metrics")).text


@pytest.mark.parametrize(
    ("failure", "said"),
    [
        (OSError(errno.EIO, "Input/output error"), "could not be read; the running one stays: [Errno 5] Input/output"),
        (KeyError("x"), "could not be built; the running one stays"),
    ],
    ids=["files that cannot be read", "a mistake of ours"],
)
async def test_what_keeps_a_configuration_from_being_built_leaves_the_running_one(monkeypatch, caplog, failure, said):
    def load_gateway(*given, **named):
        raise failure

    monkeypatch.setattr("tollgate.reload.load_or_report_all", load_gateway)
    running = SimpleNamespace(
        loaded=SimpleNamespace(reusable=None), gateway=SimpleNamespace(files=(), root=Path("/nowhere"))
    )
    holder = SimpleNamespace(current=running, stale=False, swapping=asyncio.Lock())
    reloader = Reloader(holder, None)
    state = await reloader.reload()
    assert state is reloader.state and (state.ok, state.count) == (False, 0)
    assert holder.current is running and holder.stale
    assert said in caplog.text


async def test_a_folder_that_lost_all_its_provider_files_leaves_the_running_configuration(tmp_path):
    async with inprocess(tmp_path, providers={"acme": ACME}) as here:
        before = here.services.runtime.current
        (tmp_path / "providers").rename(tmp_path / "old")
        state = await here.opened.reloader.reload()
        assert not state.ok and here.services.runtime.current is before
        assert [problem.message for problem in state.problems] == [
            "found no *.yaml, where the running configuration has its providers"
        ]
        (tmp_path / "old").rename(tmp_path / "providers")
        assert (await here.opened.reloader.reload()).ok


async def test_a_changed_file_is_noticed(tmp_path):
    async with inprocess(tmp_path, providers={"acme": ACME}) as here:
        (tmp_path / "providers" / "acme.yaml").write_text(ACME.replace("acme/one", "acme/three"))
        for _ in range(300):
            await asyncio.sleep(0.1)
            if here.services.runtime.current.catalog.resolve("acme/three") is not None:
                return
        raise AssertionError("the change was not taken within half a minute")


async def test_a_file_that_changed_before_the_first_look_is_noticed(tmp_path):
    """A start takes a second, and longer where it waits for a database."""
    async with inprocess(tmp_path, providers={"acme": ACME}) as here:
        (tmp_path / "providers" / "acme.yaml").write_text(ACME.replace("acme/one", "acme/three"))
        reloader = here.opened.reloader
        await reloader._look(reloader._as_read())
        assert here.services.runtime.current.catalog.resolve("acme/three") is not None
        assert reloader._as_read() == reloader._stamp()


@pytest.fixture
def looks(monkeypatch):
    """One entry for each look of a reloader, which looks often."""
    queue, look = asyncio.Queue(), Reloader._look

    async def looked(self, seen):
        queue.put_nowait(None)
        return await look(self, seen)

    monkeypatch.setattr("tollgate.reload._LOOK_SECONDS", 0.02)
    monkeypatch.setattr("tollgate.reload._SETTLED_SHORTER_SECONDS", 0.02)
    monkeypatch.setattr(Reloader, "_look", looked)
    return queue


async def test_a_change_that_is_taken_back_right_after_a_signal_is_noticed(tmp_path, looks):
    """As where a link leads to one folder and back to the other: the files are those of before the signal again."""
    away = tmp_path / "acme.kept"
    async with inprocess(tmp_path, providers={"acme": ACME}) as here:
        await looks.get()
        file = tmp_path / "providers" / "acme.yaml"
        file.rename(away)
        file.write_text(ACME.replace("acme/one", "acme/three"))
        await here.opened.reloader.reload()
        away.rename(file)
        async with asyncio.timeout(30):
            while here.services.runtime.current.catalog.resolve("acme/one") is None:
                await looks.get()


async def test_a_reload_that_watches_other_folders_is_done_once(tmp_path, monkeypatch, looks, caplog):
    monkeypatch.setattr("tollgate.reload._SETTLED_SECONDS", 0.02)
    caplog.set_level("INFO", "tollgate.reload")
    async with inprocess(tmp_path, providers={"acme": ACME}) as here:
        reloader, settings = here.opened.reloader, tmp_path / "gateway.yaml"

        async def reloaded(count):
            async with asyncio.timeout(60):
                while reloader.state.count < count:
                    await looks.get()
                for _ in range(looks.qsize() + 4):  # and is not done again
                    await looks.get()
            assert reloader.state.count == count

        text = settings.read_text()
        await looks.get()
        (tmp_path / "more").mkdir()
        (tmp_path / "more" / "bemo.yaml").write_text(ACME.replace("acme/one", "bemo/one").replace(": acme", ": bemo"))
        settings.write_text(text + 'providers: ["providers/*.yaml", "more/*.yaml"]\n')
        await reloaded(1)
        assert here.services.runtime.current.catalog.resolve("bemo/one") is not None
        (tmp_path / "more" / "bemo.yaml").write_text(ACME.replace("acme/one", "bemo/two").replace(": acme", ": bemo"))
        await reloaded(2)
        settings.write_text(text)
        await reloaded(3)
        assert here.services.runtime.current.catalog.resolve("bemo/two") is None
    assert caplog.text.count("configuration reloaded") == 3


@pytest.mark.parametrize(
    ("before", "now", "pause"),
    [
        ({"a": 9}, {"a": 9, "b": 1}, 0.25),
        ({"a": 9}, {"a": 10}, 0.25),
        ({"a": 9}, {"a": 0}, 1.0),
        ({"a": 9, "b": 1}, {"a": 9}, 1.0),
    ],
    ids=["a new one", "longer", "shorter", "gone"],
)
async def test_half_a_file_is_given_longer_to_become_whole(monkeypatch, before, now, pause):
    """Who writes a file over in place makes it shorter first, and what is there so far may well be valid."""
    paused, reloads = [], []
    stamps = [
        frozenset((file, 1 if sizes is before else 2, size) for file, size in sizes.items()) for sizes in (before, now)
    ]

    async def sleep(seconds):
        paused.append(seconds)

    async def reload():
        reloads.append(True)

    reloader = Reloader(LONG_AGO, None)
    monkeypatch.setattr("tollgate.reload.asyncio", SimpleNamespace(sleep=sleep, to_thread=asyncio.to_thread))
    monkeypatch.setattr(reloader, "_stamp", lambda: stamps[1])
    monkeypatch.setattr(reloader, "reload", reload)
    assert await reloader._look(stamps[0]) == stamps[1]
    assert (paused, reloads) == ([pause], [True])


async def test_a_file_that_is_still_being_written_is_read_when_it_is_done(monkeypatch):
    before, *later = (frozenset({("a", 1, size)}) for size in (9, 10, 11))
    reloads = []

    async def reload():
        reloads.append(True)

    reloader = Reloader(LONG_AGO, None)
    monkeypatch.setattr("tollgate.reload._SETTLED_SECONDS", 0)
    monkeypatch.setattr(reloader, "_stamp", lambda: later.pop(0) if len(later) > 1 else later[0])
    monkeypatch.setattr(reloader, "reload", reload)
    assert await reloader._look(before) == before and not reloads
    assert await reloader._look(before) == later[0] and reloads


async def test_a_reload_waits_for_whoever_else_builds_a_configuration(tmp_path):
    """Else the models that a provider's list had, which came meanwhile, would go again."""
    async with inprocess(tmp_path, providers={"acme": ACME}) as here:
        before = here.services.runtime.current
        async with here.services.runtime.swapping:
            reloading = asyncio.create_task(here.opened.reloader.reload())
            await asyncio.wait([reloading], timeout=0.2)
            assert not reloading.done()
        assert (await reloading).ok and here.services.runtime.current is not before


async def test_files_that_take_the_place_of_built_in_ones_are_noticed(tmp_path, monkeypatch):
    """A gateway that was started in an empty folder looks for what `tollgate init`, or a person, puts there later."""
    monkeypatch.chdir(tmp_path)
    gateway = SimpleNamespace(root=tmp_path, files=(Path(__file__),))
    reloader = Reloader(SimpleNamespace(current=SimpleNamespace(gateway=gateway)), None)
    seen = reloader._stamp()
    for name in ("gateway.yaml", "providers/acme.yaml", "mappings/own.yaml"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("{}")
        before, seen = seen, reloader._stamp()
        assert seen > before, name


LONG_AGO = SimpleNamespace(current=SimpleNamespace(loaded=SimpleNamespace(read_at=0.0)))
"""Holds a configuration that was read before any file there is was written."""


async def test_files_are_looked_at_beside_the_event_loop(monkeypatch):
    """A hanging network disk must not hang the gateway."""
    monkeypatch.setattr("tollgate.reload._LOOK_SECONDS", 0)
    reloader, disk_answers, looking, answered = Reloader(LONG_AGO, None), threading.Event(), asyncio.Event(), []
    loop = asyncio.get_running_loop()

    def look():
        loop.call_soon_threadsafe(looking.set)
        answered.append(disk_answers.wait(30))
        return frozenset()

    monkeypatch.setattr(reloader, "_stamp", look)
    watch = asyncio.create_task(reloader.watch())
    await asyncio.wait_for(looking.wait(), 30)
    disk_answers.set()  # the loop is free to say so
    async with asyncio.timeout(60):
        while not answered:
            await asyncio.sleep(0)
    assert answered[0]
    watch.cancel()


async def test_a_look_at_the_files_that_fails_is_not_the_last(monkeypatch):
    monkeypatch.setattr("tollgate.reload._LOOK_SECONDS", 0)
    reloader, reloaded, written = Reloader(LONG_AGO, None), asyncio.Event(), frozenset({("a.yaml", 1, 9)})
    looks = iter(
        [
            OSError(errno.EMFILE, "Too many open files"),
            frozenset(),
            OSError(errno.EMFILE, "Too many open files"),
            written,
            OSError(errno.EMFILE, "Too many open files"),
        ]
    )

    def look():
        seen = next(looks, written)
        if isinstance(seen, OSError):
            raise seen
        return seen

    async def reload():
        reloaded.set()

    monkeypatch.setattr(reloader, "_stamp", look)
    monkeypatch.setattr(reloader, "reload", reload)
    watch = asyncio.create_task(reloader.watch())
    await asyncio.wait_for(reloaded.wait(), 30)
    watch.cancel()


async def test_a_running_stream_keeps_its_configuration(tmp_path):
    async with inprocess(tmp_path, providers={"acme": ACME}) as here:
        body = {
            "model": "sandbox/echo",
            "stream": True,
            "messages": [{"role": "user", "content": "[[pace=30ms]] a b c d e f g h"}],
        }
        running = asyncio.create_task(here.post("/v1/chat/completions", body))
        await asyncio.sleep(0.1)
        (tmp_path / "providers" / "sandbox.yaml").unlink()
        assert (await here.opened.reloader.reload()).ok
        assert (await here.post("/v1/chat/completions", body)).status_code == 400
        reply = await running
        assert reply.status_code == 200 and reply.text.endswith("data: [DONE]\n\n")


KEYED = (
    ACME.replace("speaks", "headers: {authorization: $secret.ACME_KEY}\nspeaks")
    .replace("acme", "keyed")
    .replace("ACME_KEY", "KEYED_KEY")
)


async def test_a_reload_names_the_providers_it_turned_off_and_on(tmp_path, caplog):
    caplog.set_level("INFO", "tollgate.reload")
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "KEYED_KEY").write_text("sk-canary-1")
    async with inprocess(tmp_path, providers={"acme": ACME, "keyed": KEYED}) as here:
        assert (await here.opened.reloader.reload()).ok
        assert [line for line in caplog.messages if line.startswith("providers that")] == [], (
            "nothing changed, nothing is said"
        )
        (tmp_path / "secrets" / "KEYED_KEY").unlink()
        assert (await here.opened.reloader.reload()).ok
        assert (
            "providers that went off, because a secret is not set (`tollgate check` names it): keyed" in caplog.messages
        )
        (tmp_path / "secrets" / "KEYED_KEY").write_text("sk-canary-2")
        (tmp_path / "providers" / "acme.yaml").unlink()
        assert (await here.opened.reloader.reload()).ok
        assert [line for line in caplog.messages if line.startswith("providers that")][1:] == [
            "providers that are gone with their files: acme",
            "providers that came on: keyed",
        ]
    assert "canary" not in caplog.text


async def test_a_reload_warns_of_models_that_go_and_only_of_what_is_new(tmp_path, caplog):
    ago = ACME.replace("up-1,", 'up-1, retires: "2026-01-01",')
    async with inprocess(tmp_path, providers={"acme": ago, "other": ACME.replace("acme", "other")}) as here:
        assert (await here.opened.reloader.reload()).ok
        (tmp_path / "providers" / "other.yaml").write_text(ago.replace("acme", "other"))
        assert (await here.opened.reloader.reload()).ok
        # as read when its day had not come: its file is the same, but the day has passed
        loaded = here.services.runtime.current.loaded
        here.services.runtime.current = replace(here.services.runtime.current, loaded=replace(loaded, read_at=0.0))
        assert (await here.opened.reloader.reload()).ok
    warned = [line.partition("which has passed: ")[2] for line in caplog.messages if "2026-01-01" in line]
    assert warned == [
        f"{name} withdraws this model (move its callers, then take it out; or write the new date)"
        for name in ("other", "acme", "other")
    ]


async def test_a_reload_takes_the_minimum_of_credits_and_names_what_only_a_start_takes(tmp_path, caplog):
    async with inprocess(tmp_path, providers={"acme": ACME}, apps={"acme": replying(body=ANSWER)}) as here:
        ask, path = {**ASK, "model": "acme/one"}, tmp_path / "gateway.yaml"
        assert (await here.post("/v1/chat/completions", ask)).status_code == 200
        path.write_text(path.read_text() + 'credits: {minimum: "1000"}\n')
        assert (await here.opened.reloader.reload()).ok
        assert (await here.post("/v1/chat/completions", ask)).status_code == 403
        assert "next start" not in caplog.text
        path.write_text(
            path.read_text() + 'server: {bind: ["127.0.0.1:1"], drain_seconds: 2}\ndashboard: {session_hours: 1}\n'
        )
        for _ in range(2):
            assert (await here.opened.reloader.reload()).ok
        path.write_text(path.read_text().replace("drain_seconds: 2", "base_url: https://gateway.example"))
        assert (await here.opened.reloader.reload()).ok
    assert [line.partition("only: ")[2] for line in caplog.messages if "next start" in line] == [
        "server.bind, dashboard",
        "server.base_url of the dashboard",
    ]


async def test_a_reload_warns_of_a_model_that_lost_its_price_once(tmp_path, caplog):
    async with inprocess(tmp_path, providers={"acme": ACME}) as here:
        (tmp_path / "providers" / "acme.yaml").write_text(ACME.replace('completion: "1", ', ""))
        for _ in range(2):
            assert (await here.opened.reloader.reload()).ok
        warned = [line for line in caplog.messages if "price" in line]
        assert (
            len(warned) == 1 and "acme.yaml:6:3: warning: models.acme/one.price: found no completion price" in warned[0]
        )


OWN = """
mapping: own
request: {from_hub: {prompt: "{{ $.turns[*].parts[*].text | join }}"}}
response: {to_hub: {parts: [{kind: text, text: $.said}], stop: end}}
examples:
  - {name: an answer, of: response.to_hub, given: {said: hi}, expect: {parts: [{kind: text, text: hi}], stop: end}}
"""
SPEAKS_OWN = (
    ACME.replace("speaks: chat", "speaks: own")
    + """
request: [{rename: {prompt: text}}]
examples:
  - {name: its word, of: request, given: {prompt: hi}, expect: {text: hi}}
"""
)


async def test_a_file_whose_examples_fail_is_not_taken(tmp_path):
    (tmp_path / "mappings").mkdir()
    mapping, provider = tmp_path / "mappings" / "own.yaml", tmp_path / "providers" / "acme.yaml"
    mapping.write_text(OWN)
    async with inprocess(tmp_path, providers={"acme": SPEAKS_OWN}) as here:
        before = here.services.runtime.current
        for file, good, bad, place in (
            (mapping, OWN, OWN.replace("$.said", "$.sayd"), "own.yaml:6:"),
            (provider, SPEAKS_OWN, SPEAKS_OWN.replace("prompt: text", "prompt: txt"), "acme.yaml:10:"),
        ):
            file.write_text(bad)
            state = await here.opened.reloader.reload()
            assert not state.ok and here.services.runtime.current is before
            assert place in state.problems[0].render()
            file.write_text(good)
        assert (await here.opened.reloader.reload()).ok


async def test_a_reload_tells_what_a_changed_mapping_is_warned_of(tmp_path, caplog):
    (tmp_path / "mappings").mkdir()
    (tmp_path / "mappings" / "own.yaml").write_text(OWN)
    async with inprocess(tmp_path, providers={"acme": SPEAKS_OWN}) as here:
        (tmp_path / "mappings" / "own.yaml").write_text(OWN.replace("$.turns", "$.truns"))
        assert (await here.opened.reloader.reload()).ok
    assert "did you mean `turns`?" in caplog.text


async def test_a_reload_tells_what_a_changed_provider_file_is_warned_of(tmp_path, caplog):
    choice = "response: [{set: {code: {$match: $.code, %s: none, $else: some}}}]"
    async with inprocess(tmp_path, providers={"acme": ACME + choice % "'0'"}) as here:
        assert "does not choose the number" not in caplog.text
        (tmp_path / "providers" / "acme.yaml").write_text(ACME + choice % "0")
        assert (await here.opened.reloader.reload()).ok
    assert "acme.yaml:" in caplog.text and "a label is text: `0` does not choose the number 0" in caplog.text


async def test_a_refused_reload_tells_its_mistake_without_the_warnings_of_other_files(tmp_path, caplog):
    dear = ACME.replace("provider: acme", "provider: dear").replace(
        'prompt: "1", completion: "1", unit: 1000000', 'prompt: "1", completion: "1"'
    )
    async with inprocess(tmp_path, providers={"acme": ACME, "dear": dear}) as here:
        caplog.clear()
        (tmp_path / "providers" / "acme.yaml").write_text(ACME.replace("url: app", "urll: app"))
        assert not (await here.opened.reloader.reload()).ok
    assert "did you mean `url`?" in caplog.text and "dear.yaml" not in caplog.text
