"""The steps of a job over HTTP: what they send and how their answers are read. Ledger, client and catalog are real."""

import dataclasses

import pytest

from support.image_jobs import URL, Script, create, inbound, look, unfit
from support.image_provider import Provider, at, image_model, job, make_offer, settled
from tollgate.config.authorisation import Authorisation
from tollgate.errors import BadRequest, UpstreamFailed, UpstreamRejected
from tollgate.images.service import create_generation
from tollgate.mapping.hosts import read_host
from tollgate.mapping.images.offer import Step
from tollgate.mapping.provider import ErrorRules


@pytest.mark.parametrize(
    ("encoding", "kind", "sent"),
    [
        ("json", "application/json", b'{"model":"draw-1","prompt":"a cat","n":1,"seed":null}'),
        ("form", "application/x-www-form-urlencoded", b"model=draw-1&prompt=a+cat&n=1"),
        ("multipart", "multipart/form-data; boundary=tollgate-", b'name="prompt"\r\n\r\na cat\r\n'),
    ],
)
async def test_a_step_sends_its_body_in_the_encoding_of_its_file(gateway, encoding, kind, sent):
    submit = Step(
        "submit",
        "POST",
        lambda values: "app://acme/jobs",
        lambda values: {"id": "p1", "status": "succeeded", "images": URL},
        {},
        lambda values: {"model": values["$"]["model"], **values["$"]["input"], "seed": None},
        encoding,
    )
    services, key, provider = await gateway(Script((200, {})), make_offer(submit=submit))
    await create(services, key, {"prompt": "a cat", "n": 1})
    await settled(services)
    assert provider.headers[0]["content-type"].startswith(kind)
    assert sent in provider.bodies[0]
    assert b"seed" not in provider.bodies[0] or encoding == "json"


def offer_with_upload(*, when=None, status=201, encoding="file", image="AAAA"):
    """A provider to which images are uploaded first: its answers, and an offer of it."""

    def answer(method, path, body):
        if path == "/assets":
            return 200, {"id": "a1", "to": "app://acme/storage/1?sig=s"}
        if path.startswith("/storage"):
            return status, b"" if status < 400 else b"<Error><Code>SignatureDoesNotMatch</Code></Error>"
        return 200, {"id": "p1", "status": "processing"}

    prepare = Step(
        "prepare",
        "POST",
        lambda values: "app://acme/assets",
        lambda values: {"picture": values["$"]["id"], "to": values["$"]["to"]},
        body=lambda values: {"model": values["$"]["model"]},
        when=when,
    )
    upload = Step(
        "upload",
        "PUT",
        at("$job", "to"),
        lambda values: None,
        {"authorization": lambda values: None},
        lambda values: image,
        encoding,
        auth=False,
        when=when,
    )
    picture = at("$job", "picture")
    submit = Step("submit", "POST", lambda values: "app://acme/jobs", job, body=lambda values: {"of": picture(values)})
    poll = Step("poll", "GET", lambda values: f"app://acme/jobs/{picture(values)}", job)
    return answer, make_offer(submit=submit, poll=poll, before=(prepare, upload))


@pytest.mark.parametrize(
    ("image", "kind"),
    [
        ("AAAA", "application/octet-stream"),
        ("data:image/png;base64,AAAA", "image/png"),
        ({"file": "AAAA", "type": "image/webp"}, "image/webp"),
    ],
    ids=["base64", "a data URL", "with its type"],
)
async def test_an_image_is_uploaded_before_its_job_is_submitted(gateway, image, kind):
    answer, offer = offer_with_upload(image=image)
    services, key, provider = await gateway(answer, offer)
    made = await create(services, key)
    await look(services, key, made["id"])
    assert provider.calls[:4] == [
        ("POST", "/assets", {"model": "draw-1"}),
        ("PUT", "/storage/1?sig=s", b"\0\0\0"),
        ("POST", "/jobs", {"of": "a1"}),
        ("GET", "/jobs/a1", b""),
    ]
    assert provider.headers[1]["content-type"] == kind
    assert "authorization" in provider.headers[0] and "authorization" not in provider.headers[1]


async def test_a_job_without_an_image_has_no_upload(gateway):
    answer, offer = offer_with_upload(when=at("$input", "image"))
    services, key, provider = await gateway(answer, offer)
    await create(services, key)
    assert provider.calls == [("POST", "/jobs", {"of": None})]


@pytest.mark.parametrize("status", [400, 403, 404, 500])
async def test_a_failed_upload_fails_the_route_without_a_key_alarm(gateway, status):
    answer, offer = offer_with_upload(status=status)
    other = Provider(lambda *_: (200, {"id": "b1", "status": "processing"}))
    first = Provider(answer)
    services, key, _ = await gateway(
        answer, offer, make_offer("bemo", model=image_model(provider="bemo")), apps={"acme": first, "bemo": other}
    )
    await create(services, key)
    assert [path for _, path, _ in first.calls] == ["/assets", "/storage/1?sig=s"]
    assert [path for _, path, _ in other.calls] == ["/jobs"]
    assert services.health.alarms() == []


async def test_a_rejected_key_during_an_upload_alerts_the_operator(gateway, caplog):
    answer, offer = offer_with_upload(status=401)
    prepare, upload = offer.before
    offer = dataclasses.replace(offer, before=(prepare, dataclasses.replace(upload, auth=True)))
    services, key, _ = await gateway(answer, offer)
    with pytest.raises(UpstreamFailed):
        await create(services, key)
    assert "provider acme: our key there is refused" in caplog.text


async def test_the_answer_to_an_upload_need_not_be_json(gateway):
    answer, offer = offer_with_upload()
    services, key, provider = await gateway(
        lambda method, path, body: (200, b"<Stored/>") if path.startswith("/storage") else answer(method, path, body),
        offer,
    )
    assert (await create(services, key))["status"] == "processing"
    assert provider.calls[-1] == ("POST", "/jobs", {"of": "a1"})


async def test_a_step_has_its_own_headers_and_content_type(gateway):
    answer, offer = offer_with_upload(image="data:image/png;base64,AAAA")
    prepare, upload = offer.before
    typed = dataclasses.replace(upload, headers={"content-type": lambda values: "image/x-own", "x-size": lambda _: 3})
    services, key, provider = await gateway(answer, dataclasses.replace(offer, before=(prepare, typed)))
    await create(services, key)
    assert (provider.headers[1]["content-type"], provider.headers[1]["x-size"]) == ("image/x-own", "3")


async def test_an_invalid_image_is_a_bad_request(gateway):
    answer, offer = offer_with_upload(image="no base64!")
    services, key, provider = await gateway(answer, offer)
    with pytest.raises(BadRequest, match="input: the file is neither base64 nor a data URL"):
        await create(services, key)
    assert [path for _, path, _ in provider.calls] == ["/assets"]


@pytest.mark.parametrize("encoding", ["form", "multipart"])
async def test_a_list_cannot_be_sent_as_a_form(gateway, encoding):
    submit = Step(
        "submit", "POST", lambda values: "app://acme/jobs", lambda values: {}, {}, lambda values: ["a cat"], encoding
    )
    services, key, provider = await gateway(Script((200, {})), make_offer(submit=submit))
    with pytest.raises(UpstreamFailed, match="does not fit its file"):
        await create_generation(services, inbound(key, {"model": "acme/draw", "input": {"prompt": "a cat"}}))
    assert provider.bodies == []


async def test_an_answer_without_an_image_is_reported_to_the_operator(gateway, caplog):
    services, key, _ = await gateway(
        Script((200, {"id": "p1", "status": "starting"}), (200, {"id": "p1", "status": "succeeded", "pictures": URL}))
    )
    ended = await look(services, key, (await create(services, key))["id"])
    assert (ended["status"], ended["error"]) == ("failed", "the provider returned no image")
    assert (
        "provider acme: `images` of its poll step finds no picture in the answer, which has 'id, status, pictures'"
        in caplog.text
    )


async def test_a_rejected_access_token_is_not_reused(gateway):
    tokens = []

    def issuer(method, path, body):
        if path.endswith("/token"):
            tokens.append(path)
            return 200, {"access_token": f"token-{len(tokens)}"}
        return (
            (403, {"error": {"message": "token expired"}})
            if len(tokens) == 1
            else (200, {"id": "p1", "status": "starting"})
        )

    auth = Authorisation("oauth_client", {"token_url": "app://acme/token", "client_id": "us", "client_secret": "x"})
    services, key, _ = await gateway(issuer, make_offer(auth=auth))
    with pytest.raises(UpstreamFailed):
        await create(services, key)
    assert (await create(services, key))["status"] == "starting"


async def test_an_unknown_status_keeps_the_job_processing(gateway, caplog):
    services, key, _ = await gateway(
        Script((200, {"id": "p1", "status": "Queued-Up"})), make_offer(words={"Done": "succeeded"})
    )
    made = await create(services, key)
    assert made["status"] == "processing"
    for _ in range(3):
        await look(services, key, made["id"])
    assert len([record for record in caplog.records if "'Queued-Up'" in record.message]) == 1, (
        "logged once, not at every poll"
    )


async def test_an_answer_with_too_many_values_is_rejected(gateway, monkeypatch):
    monkeypatch.setattr("tollgate.images.calls._MOST_VALUES", 100)
    services, key, _ = await gateway(
        lambda method, path, body: (200, {"id": "p1", "status": "succeeded", "images": URL, "more": [[]] * 100}),
        make_offer(),
    )
    with pytest.raises(UpstreamFailed, match="the answer holds more than 100 values"):
        await create(services, key)


@pytest.mark.parametrize("status", ["succeeded", None])
async def test_images_are_fetched_by_a_separate_step(gateway, status):
    def answer(method, path, body):
        return {
            "/jobs": (200, {"id": "p1", "status": "IN_QUEUE", "response_url": "app://acme/results/p1"}),
            "/jobs/p1": (200, {"status": "COMPLETED"}),
            "/results/p1": (200, {"status": status, "images": URL}),
        }[path]

    def job(values):
        return {name: values["$"].get(name) for name in ("id", "status", "images", "response_url")}

    submit = Step("submit", "POST", lambda values: "app://acme/jobs", job)
    fetch = Step("fetch", "GET", lambda values: values["$job"]["response_url"], job)
    services, key, provider = await gateway(
        answer, make_offer(submit=submit, fetch=fetch, words={"IN_QUEUE": "starting", "COMPLETED": "succeeded"})
    )
    made = await create(services, key)
    assert (await look(services, key, made["id"]))["images"] == URL
    assert [path for _, path, _ in provider.calls] == ["/jobs", "/jobs/p1", "/results/p1"]


@pytest.mark.parametrize("status", ["failed", "canceled"])
async def test_nothing_is_fetched_for_a_job_that_did_not_succeed(gateway, status):
    fetch = Step("fetch", "GET", lambda values: "app://acme/results/p1", job)
    services, key, provider = await gateway(
        Script((200, {"id": "p1", "status": "starting"}), (200, {"status": status, "error": "no"})),
        make_offer(fetch=fetch),
    )
    made = await create(services, key)
    assert (await look(services, key, made["id"]))["status"] == status
    assert [path for _, path, _ in provider.calls] == ["/jobs", "/jobs/p1"]


async def test_a_url_outside_the_declared_hosts_is_not_called(gateway):
    def job(values):
        return {"id": "p1", "status": "starting", "poll_url": "https://evil.example/steal"}

    submit = Step("submit", "POST", lambda values: "app://acme/jobs", job)
    poll = Step("poll", "GET", at("$job", "poll_url"), job, hosts=(read_host("acme.example"),))
    services, key, provider = await gateway(Script((200, {})), make_offer(submit=submit, poll=poll))
    made = await create(services, key)
    with pytest.raises(UpstreamFailed, match="under no declared host"):
        await look(services, key, made["id"])
    assert len(provider.calls) == 1


@pytest.mark.parametrize("url", [None, "", 7], ids=["nothing", "an empty text", "a number"])
async def test_an_answer_without_a_poll_url_is_an_upstream_failure(gateway, url):
    submit = Step("submit", "POST", lambda values: "app://acme/jobs", job)
    poll = Step("poll", "GET", lambda values: url, job)
    services, key, provider = await gateway(
        Script((200, {"id": "p1", "status": "starting"})), make_offer(submit=submit, poll=poll)
    )
    made = await create(services, key)
    with pytest.raises(UpstreamFailed, match="holds no address for the poll step"):
        await look(services, key, made["id"])
    assert len(provider.calls) == 1


async def test_an_answer_that_does_not_fit_its_file_is_an_upstream_failure_and_logged(gateway, caplog):
    submit = Step("submit", "POST", lambda values: "app://acme/jobs", unfit)
    services, key, _ = await gateway(Script((200, {"id": "p1"})), make_offer(submit=submit))
    with pytest.raises(UpstreamFailed, match="does not fit its file"):
        await create(services, key)
    assert "provider acme: an answer does not fit its submit step: cannot subtract a text and a number" in caplog.text


async def test_an_error_response_is_not_read_as_a_stream(gateway):
    submit = Step("submit", "POST", lambda values: "app://acme/jobs", job, framing="sse")
    services, key, _ = await gateway(Script((400, {"error": "no cats"})), make_offer(submit=submit))
    with pytest.raises(UpstreamRejected, match="no cats"):
        await create(services, key)


async def test_a_key_in_a_provider_s_error_is_redacted(gateway):
    offer = dataclasses.replace(
        make_offer(), errors=ErrorRules(redact=lambda text: text.replace("sk-secret", "[secret]"))
    )
    services, key, _ = await gateway(
        Script(
            (200, {"id": "p1", "status": "starting"}),
            (200, {"status": "failed", "error": "key sk-secret is out of credits"}),
        ),
        offer,
    )
    made = await create(services, key)
    assert (await look(services, key, made["id"]))["error"] == "key [secret] is out of credits"
