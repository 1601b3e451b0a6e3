"""A changed file takes effect automatically; an invalid one changes nothing, and its mistake is reported."""

import asyncio
import errno
import os
import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from support.inprocess import inprocess, replying
from support.waiting import until
from tollgate.reload import Reloader

ACME = """
provider: acme
speaks: chat
url: app://acme/chat
models:
  acme/one: {upstream: up-1, context: 1000, max_output: 100, price: {prompt: "1", completion: "1", unit: 1000000, currency: USD}}
"""  # noqa: E501
CHAT_REQUEST = {"model": "acme/two", "messages": [{"role": "user", "content": "hi"}]}
ANSWER = b'{"id":"c","choices":[{"index":0,"message":{"role":"assistant","content":"x"},"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":1}}'  # noqa: E501


async def test_a_reload_serves_a_new_model_and_reuses_unchanged_files(tmp_path):
    async with inprocess(tmp_path, providers={"acme": ACME}, apps={"acme": replying(body=ANSWER)}) as app:
        assert (await app.post("/v1/chat/completions", CHAT_REQUEST)).status_code == 400
        before = app.services.runtime.current
        (tmp_path / "providers" / "acme.yaml").write_text(ACME.replace("acme/one", "acme/two"))
        state = await app.opened.reloader.reload()
        assert state.ok and state.count == 1
        assert (await app.post("/v1/chat/completions", CHAT_REQUEST)).status_code == 200
        after = app.services.runtime.current
        assert after is not before and after.mappings["chat"] is before.mappings["chat"]
        assert (
            after.providers["sandbox"] is before.providers["sandbox"]
            and after.providers["acme"] is not before.providers["acme"]
        )


async def test_an_explicit_base_url_is_kept_by_a_reload_even_if_it_equals_the_default(tmp_path):
    """For example, a container's port 9000 may be published as the host's 8787."""
    written = "server: {bind: 0.0.0.0:9000, base_url: 'http://127.0.0.1:8787'}\n"
    async with inprocess(tmp_path, providers={"acme": ACME}, settings=written) as app:
        assert (await app.opened.reloader.reload()).ok
        assert app.services.runtime.current.gateway.server.base_url == "http://127.0.0.1:8787"


async def test_an_invalid_file_is_reported_and_the_running_configuration_is_kept(tmp_path):
    async with inprocess(tmp_path, providers={"acme": ACME}) as app:
        before = app.services.runtime.current
        bad = ACME.replace("url: app", "urll: app") + "request: [{renmae: {a: b}}]\n"
        (tmp_path / "providers" / "acme.yaml").write_text(bad)
        state = await app.opened.reloader.reload()
        assert not state.ok and app.services.runtime.current is before
        report = "\n".join(problem.render() for problem in state.problems)
        assert "acme.yaml:4:1" in report and "did you mean `url`?" in report
        assert "unknown edit `renmae`" in report, "compile errors are reported beside load errors"
        assert "\ntollgate_config_current 0.0\n" in (await app.get("/metrics")).text
        (tmp_path / "providers" / "acme.yaml").write_text(ACME)
        assert (await app.opened.reloader.reload()).ok
        assert "\ntollgate_config_current 1.0\n" in (await app.get("/metrics")).text


@pytest.mark.parametrize(
    ("failure", "message"),
    [
        (OSError(errno.EIO, "Input/output error"), "could not be read; the running one stays: [Errno 5] Input/output"),
        (KeyError("x"), "could not be built; the running one stays"),
    ],
    ids=["unreadable files", "an internal error"],
)
async def test_a_load_that_raises_keeps_the_running_configuration(monkeypatch, caplog, failure, message):
    def load_gateway(*given, **named):
        raise failure

    monkeypatch.setattr("tollgate.reload.load_or_report_all", load_gateway)
    running = SimpleNamespace(
        loaded=SimpleNamespace(reusable=None),
        gateway=SimpleNamespace(files=(), folder_patterns=(), root=Path("/nowhere")),
    )
    holder = SimpleNamespace(current=running, stale=False, swapping=asyncio.Lock())
    reloader = Reloader(holder, None)
    state = await reloader.reload()
    assert state is reloader.state and (state.ok, state.count) == (False, 0)
    assert holder.current is running and holder.stale
    assert message in caplog.text


async def test_an_empty_provider_folder_keeps_the_running_configuration(tmp_path):
    async with inprocess(tmp_path, providers={"acme": ACME}) as app:
        before = app.services.runtime.current
        (tmp_path / "providers").rename(tmp_path / "old")
        state = await app.opened.reloader.reload()
        assert not state.ok and app.services.runtime.current is before
        assert [problem.message for problem in state.problems] == [
            "found no *.yaml, where the running configuration has its providers"
        ]
        (tmp_path / "old").rename(tmp_path / "providers")
        assert (await app.opened.reloader.reload()).ok


async def test_a_changed_file_is_noticed(tmp_path):
    async with inprocess(tmp_path, providers={"acme": ACME}) as app:
        (tmp_path / "providers" / "acme.yaml").write_text(ACME.replace("acme/one", "acme/three"))
        await until(lambda: app.services.runtime.current.catalog.resolve("acme/three"))


async def test_a_file_changed_before_the_first_look_is_noticed(tmp_path):
    """A start takes a second, or longer if it waits for a database."""
    async with inprocess(tmp_path, providers={"acme": ACME}) as app:
        (tmp_path / "providers" / "acme.yaml").write_text(ACME.replace("acme/one", "acme/three"))
        reloader = app.opened.reloader
        await reloader._look(reloader._as_read())
        assert app.services.runtime.current.catalog.resolve("acme/three") is not None
        assert reloader._as_read() == reloader._stamp()


@pytest.mark.parametrize("named", [None, ".", "{folder}"])
async def test_a_lost_gateway_file_keeps_the_running_configuration(tmp_path, named):
    """The defaults would be in force: without its aliases and rates, with other limits."""
    async with inprocess(tmp_path, providers={"acme": ACME}, settings="aliases: {fast: acme/one}\n") as app:
        path = None if named is None else Path(named.format(folder=tmp_path))
        reloader = Reloader(app.services.runtime, path)
        assert (await reloader.reload()).ok
        (tmp_path / "gateway.yaml").rename(tmp_path / "kept")
        (problem,) = (await reloader.reload()).problems
        assert problem.message == "found no file, where the running configuration has its settings"
        assert problem.mark.file == "gateway.yaml"
        assert app.services.runtime.current.catalog.resolve("fast") is not None
        (tmp_path / "gateway.yaml").write_text("")
        assert (await reloader.reload()).ok


@pytest.fixture(autouse=True)
def in_folder(tmp_path, monkeypatch):
    """The working directory is the gateway's folder: files have the same names in its reloads as at its start."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def looks(monkeypatch):
    """A queue with one entry for each look of a reloader that looks often."""
    queue, look = asyncio.Queue(), Reloader._look

    async def looked(self, seen):
        queue.put_nowait(None)
        return await look(self, seen)

    monkeypatch.setattr("tollgate.reload._LOOK_SECONDS", 0.02)
    monkeypatch.setattr("tollgate.reload._SETTLED_SHORTER_SECONDS", 0.02)
    monkeypatch.setattr(Reloader, "_look", looked)
    return queue


async def test_a_change_reverted_right_after_a_signal_is_noticed(tmp_path, looks):
    """For example, a symbolic link is switched and switched back: the files are again those of before the signal."""
    away = tmp_path / "acme.kept"
    async with inprocess(tmp_path, providers={"acme": ACME}) as app:
        await looks.get()
        file = tmp_path / "providers" / "acme.yaml"
        file.rename(away)
        file.write_text(ACME.replace("acme/one", "acme/three"))
        await app.opened.reloader.reload()
        away.rename(file)
        async with asyncio.timeout(30):
            while app.services.runtime.current.catalog.resolve("acme/one") is None:
                await looks.get()


@pytest.mark.parametrize(
    ("changed", "missing", "mended"),
    [
        ({"gateway.yaml": 'providers: ["providers/*.yaml", "more/*.yaml"]', "more/bemo.yaml": "provider: [\n"}, "", ""),
        ({"gateway.yaml": 'providers: ["providers/*.yaml", "more/*.yaml"]'}, "more", "more/bemo.yaml"),
        ({"gateway.yaml": "providers: [providers/acme.yaml, bemo.yaml]"}, "", "bemo.yaml"),
        ({"providers/acme.yaml": f"shared: ../more/shared.yaml{ACME}"}, "more", "more/shared.yaml"),
        ({"providers/acme.yaml": f"models_from: ../more/models.yaml{ACME}"}, "more", "more/models.yaml"),
    ],
    ids=["a wrong file in a new folder", "no file in it", "a named file", "a shared file", "a models file"],
)
async def test_what_a_refused_configuration_names_is_watched(tmp_path, changed, missing, mended):
    """Whoever mends it may change a file that the running configuration does not have."""
    async with inprocess(tmp_path, providers={"acme": ACME}, sandbox=False) as app:
        for name, text in changed.items():
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_text(text)
        reloader = app.opened.reloader
        assert not (await reloader.reload()).ok
        assert reloader._stamp() == reloader._seen, "the same files are not read twice"
        if missing:
            (tmp_path / missing).mkdir()
        (tmp_path / (mended or "more/bemo.yaml")).write_text("{}")
        assert reloader._stamp() != reloader._seen


async def test_a_file_in_a_new_folder_that_fits_a_pattern_is_noticed(tmp_path):
    lines = 'providers: ["providers/**/*.yaml", "pro*/*.yaml"]\n'
    async with inprocess(tmp_path, providers={"acme": ACME}, settings=lines, sandbox=False) as app:
        reloader = app.opened.reloader
        for number, name in enumerate(("providers/deep/er/bemo.yaml", "products/cemo.yaml"), 1):
            stamp = reloader._stamp()
            (tmp_path / name).parent.mkdir(parents=True)
            (tmp_path / name).write_text(ACME.replace("acme", Path(name).stem))
            assert reloader._stamp() != stamp
            assert (await reloader.reload()).ok
            assert len(reloader._holder.current.providers) == 1 + number
            assert reloader._stamp() == reloader._seen


async def test_a_mended_permission_and_a_switched_link_are_noticed(tmp_path):
    """The text's time stays; and the files of two releases may have the same one, as those of reproducible builds."""
    async with inprocess(tmp_path, providers={"acme": ACME}, sandbox=False) as app:
        reloader, file = app.opened.reloader, tmp_path / "providers" / "acme.yaml"
        stamps = [reloader._stamp()]
        file.chmod(0o600)
        stamps.append(reloader._stamp())
        other = tmp_path / "acme.other"
        other.write_text(file.read_text().replace("acme/one", "acme/two"))
        os.utime(other, ns=(file.stat().st_mtime_ns,) * 2)
        file.unlink()
        file.symlink_to(other)
        assert len({*stamps, reloader._stamp()}) == 3


async def test_a_reload_with_other_watched_folders_runs_once(tmp_path, monkeypatch, looks, caplog):
    monkeypatch.setattr("tollgate.reload._SETTLED_SECONDS", 0.02)
    caplog.set_level("INFO", "tollgate.reload")
    async with inprocess(tmp_path, providers={"acme": ACME}) as app:
        reloader, settings = app.opened.reloader, tmp_path / "gateway.yaml"

        async def reloaded(count):
            async with asyncio.timeout(60):
                while reloader.state.count < count:
                    await looks.get()
                for _ in range(looks.qsize() + 4):  # no further reload follows
                    await looks.get()
            assert reloader.state.count == count

        text = settings.read_text()
        await looks.get()
        (tmp_path / "more").mkdir()
        (tmp_path / "more" / "bemo.yaml").write_text(ACME.replace("acme/one", "bemo/one").replace(": acme", ": bemo"))
        settings.write_text(text + 'providers: ["providers/*.yaml", "more/*.yaml"]\n')
        await reloaded(1)
        assert app.services.runtime.current.catalog.resolve("bemo/one") is not None
        (tmp_path / "more" / "bemo.yaml").write_text(ACME.replace("acme/one", "bemo/two").replace(": acme", ": bemo"))
        await reloaded(2)
        settings.write_text(text)
        await reloaded(3)
        assert app.services.runtime.current.catalog.resolve("bemo/two") is None
    assert caplog.text.count("configuration reloaded") == 3


@pytest.mark.parametrize(
    ("before", "now", "pause"),
    [
        ({"a": 9}, {"a": 9, "b": 1}, 0.25),
        ({"a": 9}, {"a": 10}, 0.25),
        ({"a": 9}, {"a": 0}, 1.0),
        ({"a": 9, "b": 1}, {"a": 9}, 1.0),
    ],
    ids=["added", "longer", "shorter", "removed"],
)
async def test_a_file_that_shrinks_gets_more_time_to_settle(monkeypatch, before, now, pause):
    """Overwriting a file in place truncates it first, and the first half may be valid."""
    paused, reloads = [], []
    stamps = [
        frozenset((file, 1 if sizes is before else 2, 1, size) for file, size in sizes.items())
        for sizes in (before, now)
    ]

    async def sleep(seconds):
        paused.append(seconds)

    async def reload():
        reloads.append(True)

    reloader = Reloader(LONG_AGO, None)
    monkeypatch.setattr("tollgate.reload.asyncio", SimpleNamespace(sleep=sleep, to_thread=asyncio.to_thread))
    monkeypatch.setattr(reloader, "_stamp", lambda: stamps[1])
    monkeypatch.setattr(reloader, "reload", reload)
    await reloader._look(stamps[0])
    assert (paused, reloads, reloader._seen) == ([pause], [True], stamps[1])


async def test_a_file_still_being_written_is_read_once_complete(monkeypatch):
    before, *later = (frozenset({("a", 1, 1, size)}) for size in (9, 10, 11))
    reloads = []

    async def reload():
        reloads.append(True)

    reloader = Reloader(LONG_AGO, None)
    monkeypatch.setattr("tollgate.reload._SETTLED_SECONDS", 0)
    monkeypatch.setattr(reloader, "_stamp", lambda: later.pop(0) if len(later) > 1 else later[0])
    monkeypatch.setattr(reloader, "reload", reload)
    reloader._seen = before
    await reloader._look(before)
    assert reloader._seen == before and not reloads
    await reloader._look(before)
    assert reloader._seen == later[0] and reloads


async def test_a_reload_waits_for_other_rebuilds_of_the_configuration(tmp_path):
    """Otherwise it would drop models that were discovered meanwhile."""
    async with inprocess(tmp_path, providers={"acme": ACME}) as app:
        before = app.services.runtime.current
        async with app.services.runtime.swapping:
            reloading = asyncio.create_task(app.opened.reloader.reload())
            await asyncio.wait([reloading], timeout=0.2)
            assert not reloading.done()
        assert (await reloading).ok and app.services.runtime.current is not before


async def test_files_that_replace_built_in_ones_are_noticed(tmp_path, monkeypatch):
    """A gateway started in an empty folder watches for files that `tollgate init` or an operator adds later."""
    monkeypatch.chdir(tmp_path)
    gateway = SimpleNamespace(root=tmp_path, files=(Path(__file__),), folder_patterns=())
    reloader = Reloader(SimpleNamespace(current=SimpleNamespace(gateway=gateway)), None)
    seen = reloader._stamp()
    for name in ("gateway.yaml", "providers/acme.yaml", "mappings/own.yaml"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("{}")
        before, seen = seen, reloader._stamp()
        assert seen > before, name


LONG_AGO = SimpleNamespace(current=SimpleNamespace(loaded=SimpleNamespace(read_at=0.0)))
"""Holds a configuration that was read before any existing file was written."""


async def test_files_are_checked_off_the_event_loop(monkeypatch):
    """A hanging network disk must not block the gateway."""
    monkeypatch.setattr("tollgate.reload._LOOK_SECONDS", 0)
    reloader, disk_responds, look_began, answered = Reloader(LONG_AGO, None), threading.Event(), asyncio.Event(), []
    loop = asyncio.get_running_loop()

    def look():
        loop.call_soon_threadsafe(look_began.set)
        answered.append(disk_responds.wait(30))
        return frozenset()

    monkeypatch.setattr(reloader, "_stamp", look)
    watch = asyncio.create_task(reloader.watch())
    await asyncio.wait_for(look_began.wait(), 30)
    disk_responds.set()  # can only be set while the loop is free
    await until(lambda: answered)
    assert answered[0]
    watch.cancel()


async def test_a_failed_look_at_the_files_is_repeated(monkeypatch):
    monkeypatch.setattr("tollgate.reload._LOOK_SECONDS", 0)
    reloader, reloaded, written = Reloader(LONG_AGO, None), asyncio.Event(), frozenset({("a.yaml", 1, 1, 9)})
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
    async with inprocess(tmp_path, providers={"acme": ACME}) as app:
        body = {
            "model": "sandbox/echo",
            "stream": True,
            "messages": [{"role": "user", "content": "[[pace=30ms]] a b c d e f g h"}],
        }
        running = asyncio.create_task(app.post("/v1/chat/completions", body))
        await until(lambda: app.services.live)
        (tmp_path / "providers" / "sandbox.yaml").unlink()
        assert (await app.opened.reloader.reload()).ok
        assert (await app.post("/v1/chat/completions", body)).status_code == 400
        reply = await running
        assert reply.status_code == 200 and reply.text.endswith("data: [DONE]\n\n")


KEYED = (
    ACME.replace("speaks", "headers: {authorization: $secret.ACME_KEY}\nspeaks")
    .replace("acme", "keyed")
    .replace("ACME_KEY", "KEYED_KEY")
)


async def test_a_reload_logs_the_providers_it_turned_off_and_on(tmp_path, caplog):
    caplog.set_level("INFO", "tollgate.reload")
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "KEYED_KEY").write_text("sk-canary-1")
    async with inprocess(tmp_path, providers={"acme": ACME, "keyed": KEYED}) as app:
        assert (await app.opened.reloader.reload()).ok
        assert [line for line in caplog.messages if line.startswith("providers that")] == [], (
            "nothing is logged if nothing changed"
        )
        (tmp_path / "secrets" / "KEYED_KEY").unlink()
        assert (await app.opened.reloader.reload()).ok
        assert (
            "providers that went off, because a secret is not set (`tollgate check` names it): keyed" in caplog.messages
        )
        (tmp_path / "secrets" / "KEYED_KEY").write_text("sk-canary-2")
        (tmp_path / "providers" / "acme.yaml").unlink()
        assert (await app.opened.reloader.reload()).ok
        assert [line for line in caplog.messages if line.startswith("providers that")][1:] == [
            "providers that are gone with their files: acme",
            "providers that came on: keyed",
        ]
    assert "canary" not in caplog.text


async def test_a_reload_warns_of_retired_models_once(tmp_path, caplog):
    retired = ACME.replace("up-1,", 'up-1, retires: "2026-01-01",')
    async with inprocess(tmp_path, providers={"acme": retired, "other": ACME.replace("acme", "other")}) as app:
        assert (await app.opened.reloader.reload()).ok
        (tmp_path / "providers" / "other.yaml").write_text(retired.replace("acme", "other"))
        assert (await app.opened.reloader.reload()).ok
        # as if it had been read before that day: the file is unchanged, but the day has passed
        loaded = app.services.runtime.current.loaded
        app.services.runtime.current = replace(app.services.runtime.current, loaded=replace(loaded, read_at=0.0))
        assert (await app.opened.reloader.reload()).ok
    warned = [line.partition("which has passed: ")[2] for line in caplog.messages if "2026-01-01" in line]
    assert warned == [
        f"{name} withdraws this model (move its callers, then take it out; or write the new date)"
        for name in ("other", "acme", "other")
    ]


async def test_a_reload_applies_the_credit_minimum_and_names_settings_that_need_a_restart(tmp_path, caplog):
    async with inprocess(tmp_path, providers={"acme": ACME}, apps={"acme": replying(body=ANSWER)}) as app:
        body, path = {**CHAT_REQUEST, "model": "acme/one"}, tmp_path / "gateway.yaml"
        assert (await app.post("/v1/chat/completions", body)).status_code == 200
        path.write_text(path.read_text() + 'credits: {minimum: "1000"}\n')
        assert (await app.opened.reloader.reload()).ok
        assert (await app.post("/v1/chat/completions", body)).status_code == 403
        assert "next start" not in caplog.text
        path.write_text(
            path.read_text() + 'server: {bind: ["127.0.0.1:1"], drain_seconds: 2}\ndashboard: {session_hours: 1}\n'
        )
        for _ in range(2):
            assert (await app.opened.reloader.reload()).ok
        path.write_text(path.read_text().replace("drain_seconds: 2", "base_url: https://gateway.example"))
        assert (await app.opened.reloader.reload()).ok
    assert [line.partition("only: ")[2] for line in caplog.messages if "next start" in line] == [
        "server.bind, dashboard",
        "server.base_url of the dashboard",
    ]


async def test_a_reload_warns_once_of_a_model_that_lost_its_price(tmp_path, caplog):
    async with inprocess(tmp_path, providers={"acme": ACME}) as app:
        (tmp_path / "providers" / "acme.yaml").write_text(ACME.replace('completion: "1", ', ""))
        for _ in range(2):
            assert (await app.opened.reloader.reload()).ok
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


async def test_a_file_with_failing_examples_is_not_applied(tmp_path):
    (tmp_path / "mappings").mkdir()
    mapping, provider = tmp_path / "mappings" / "own.yaml", tmp_path / "providers" / "acme.yaml"
    mapping.write_text(OWN)
    async with inprocess(tmp_path, providers={"acme": SPEAKS_OWN}) as app:
        before = app.services.runtime.current
        for file, good, bad, place in (
            (mapping, OWN, OWN.replace("$.said", "$.sayd"), "own.yaml:6:"),
            (provider, SPEAKS_OWN, SPEAKS_OWN.replace("prompt: text", "prompt: txt"), "acme.yaml:10:"),
        ):
            file.write_text(bad)
            state = await app.opened.reloader.reload()
            assert not state.ok and app.services.runtime.current is before
            assert place in state.problems[0].render()
            file.write_text(good)
        assert (await app.opened.reloader.reload()).ok


async def test_the_examples_of_a_shared_file_are_run_too(tmp_path):
    head, examples = SPEAKS_OWN[: SPEAKS_OWN.index("examples:")], SPEAKS_OWN[SPEAKS_OWN.index("examples:") :]
    (tmp_path / "mappings").mkdir()
    (tmp_path / "mappings" / "own.yaml").write_text(OWN)
    async with inprocess(tmp_path, providers={"acme": SPEAKS_OWN}, sandbox=False) as app:
        (tmp_path / "providers" / "acme.yaml").write_text(f"shared: ../shared.yaml\n{head}")
        shared = tmp_path / "shared.yaml"
        shared.write_text(f"about: parts\n{examples}")
        assert (await app.opened.reloader.reload()).ok
        shared.write_text(f"about: parts\n{examples}".replace("text: hi", "text: other"))
        state = await app.opened.reloader.reload()
        assert [problem.mark.file for problem in state.problems] == ["shared.yaml"]
        assert app.services.runtime.stale


async def test_a_reload_logs_the_warnings_of_a_changed_mapping(tmp_path, caplog):
    (tmp_path / "mappings").mkdir()
    (tmp_path / "mappings" / "own.yaml").write_text(OWN)
    async with inprocess(tmp_path, providers={"acme": SPEAKS_OWN}) as app:
        (tmp_path / "mappings" / "own.yaml").write_text(OWN.replace("$.turns", "$.truns"))
        assert (await app.opened.reloader.reload()).ok
    assert "did you mean `turns`?" in caplog.text


async def test_a_reload_logs_the_warnings_of_a_changed_provider_file(tmp_path, caplog):
    choice = "response: [{set: {code: {$match: $.code, %s: none, $else: some}}}]"
    async with inprocess(tmp_path, providers={"acme": ACME + choice % "'0'"}) as app:
        assert "does not choose the number" not in caplog.text
        (tmp_path / "providers" / "acme.yaml").write_text(ACME + choice % "0")
        assert (await app.opened.reloader.reload()).ok
    assert "acme.yaml:" in caplog.text and "a label is text: `0` does not choose the number 0" in caplog.text


async def test_a_failed_reload_logs_its_mistake_without_warnings_of_other_files(tmp_path, caplog):
    dear = ACME.replace("provider: acme", "provider: dear").replace(
        'prompt: "1", completion: "1", unit: 1000000', 'prompt: "1", completion: "1"'
    )
    async with inprocess(tmp_path, providers={"acme": ACME, "dear": dear}) as app:
        caplog.clear()
        (tmp_path / "providers" / "acme.yaml").write_text(ACME.replace("url: app", "urll: app"))
        assert not (await app.opened.reloader.reload()).ok
    assert "did you mean `url`?" in caplog.text and "dear.yaml" not in caplog.text
