"""The pages in a real browser: sign in, create a key, use it with an official client, find the request, revoke the
key.

Needs the test extra `playwright` and a chromium on the path (for example Debian's); otherwise skipped with a message.
Screenshots in light, dark and phone size are written to ci-artifacts/.
"""

from __future__ import annotations

import json
import re
import shutil
import time

import pytest

from support.inprocess import write_config
from support.places import ROOT, SANDBOX_IMAGES
from support.running import gateway
from support.waiting import wait_until

ARTEFACTS = ROOT / "ci-artifacts"
PAGES = {
    "overview": "",
    "keys": "/keys",
    "usage": "/usage?range=24h",
    "requests": "/requests",
    "credits": "/credits",
    "models": "/models",
    "model": "/models/sandbox/echo",
    "try": "/try",
    "images": "/images",
    "accounts": "/operator/accounts",
    "providers": "/operator/providers",
    "live": "/operator/live",
    "config": "/operator/config",
}
TIERED = """
provider: tiered
speaks: chat
url: app://sandbox/v1/chat/completions
models:
  tiered/echo:
    upstream: echo
    price:
      prompt: "3"
      completion: "15"
      unit: 1000000
      volumes: [{min_prompt_tokens: 200000, prompt: "6", completion: "22.5"}]
      service_tiers: {flex: {prompt: "1.5", completion: "7.5"}, priority: {prompt: "6", completion: "30"}}
      multipliers: {batch: "0.5", fast: "6"}
"""
LOOKS = {
    "light": {"color_scheme": "light", "viewport": {"width": 1280, "height": 860}},
    "dark": {"color_scheme": "dark", "viewport": {"width": 1280, "height": 860}},
    "phone": {"color_scheme": "light", "viewport": {"width": 390, "height": 844}, "device_scale_factor": 2},
}


@pytest.fixture(scope="module")
def chromium():
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="no browser test: the package playwright is not installed"
    )
    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if path is None:
        pytest.skip("no browser test: no chromium on the path (on Debian: apt-get install chromium)")
    with playwright.sync_playwright() as running:
        browser = running.chromium.launch(
            executable_path=path, args=["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"]
        )
        yield browser
        browser.close()


@pytest.fixture(autouse=True)
def close_pages(chromium):
    """Closes all pages after a test, so that none renders during the next one."""
    yield
    for context in chromium.contexts:
        context.close()


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    folder = tmp_path_factory.mktemp("gateway")
    config = write_config(folder, providers={"sandbox-images": SANDBOX_IMAGES, "tiered": TIERED})
    config.write_text(config.read_text().replace("store: {", "store: {publish_seconds: 0.2, apply_seconds: 0.1, "))
    long = "unbroken" * 9
    (folder / "mappings").mkdir(exist_ok=True)
    (folder / "mappings" / f"{long}.yaml").write_text(
        f"mapping: {long}\nhub: embeddings\nresponse: {{to_hub: {{vectors: $.vectors}}}}\n"
    )
    with gateway(folder) as started:
        yield started


FAINT = """() => {
    const parts = colour => { const found = colour.match(/[0-9.]+/g).map(Number);
        return colour.startsWith("color(") ? found.map((part, at) => at < 3 ? part * 255 : part) : found; };
    const light = rgb => rgb.map(part => part / 255).map(part => part <= .03928 ? part / 12.92 : ((part + .055) / 1.055) ** 2.4)
        .reduce((sum, part, at) => sum + part * [.2126, .7152, .0722][at], 0);
    const faint = [];
    for (const node of document.querySelectorAll("body *")) {
        if (!node.offsetParent || ![...node.childNodes].some(child => child.nodeType === 3 && child.textContent.trim())) continue;
        let under = node, opacity = 1;
        while (under.parentElement && parts(getComputedStyle(under).backgroundColor)[3] === 0) under = under.parentElement;
        for (let above = node; above; above = above.parentElement) opacity *= getComputedStyle(above).opacity;
        const back = parts(getComputedStyle(under).backgroundColor).slice(0, 3), ink = parts(getComputedStyle(node).color).slice(0, 3);
        const [one, other] = [light(ink.map((part, at) => part * opacity + back[at] * (1 - opacity))), light(back)];
        if ((Math.max(one, other) + .05) / (Math.min(one, other) + .05) < 4.5) faint.push(node.outerHTML.slice(0, 100));
    }
    return faint;
}"""  # noqa: E501
"""Elements whose text has a contrast of less than 4.5 : 1 (WCAG 2.2, 1.4.3)."""


LARGE = """() => {
    for (const each of document.querySelectorAll(".tile .money, .who .money")) each.innerHTML = '$996,527.85<span class="fine">1979445586</span>';
    const places = [...document.querySelectorAll(".brand, .who > *")].filter(each => each.offsetParent).map(each => each.getBoundingClientRect());
    const over = (one, other) => one.left < other.right - 1 && other.left < one.right - 1 && one.top < other.bottom - 1 && other.top < one.bottom - 1;
    const amounts = [...document.querySelectorAll(".tile .money, .who .money")].filter(each => each.offsetParent);
    return amounts.filter(each => each.getBoundingClientRect().right > each.closest(".tile, .who").getBoundingClientRect().right + 1).length
        + places.filter((one, at) => places.slice(at + 1).some(other => over(one, other))).length;
}"""  # noqa: E501
"""The number of large amounts that are cut off, and of elements beside them that overlap."""


OPEN = "() => { for (const each of document.querySelectorAll('details')) each.open = true; }"
CUT = """() => [...document.querySelectorAll(".scroll")].filter(
    each => each.scrollWidth > each.clientWidth && getComputedStyle(each).overflowX !== "visible").length"""
"""The number of tables that must be scrolled to be seen whole."""
FITS = "document.documentElement.scrollWidth <= document.documentElement.clientWidth"


def signed_in(chromium, running, **look):
    context = chromium.new_context(**look)
    page = context.new_page()
    page.set_default_timeout(15_000)
    console: list[str] = []
    page.on("console", lambda message: console.append(message.text))
    page.on("pageerror", lambda error: console.append(str(error)))
    page.goto(running.cli("accounts", "link").strip())
    page.get_by_role("button", name="Sign in as default").click()
    page.wait_for_url("**/dashboard")
    return page, console


def reload_until(page, path: str, locator) -> None:
    """Loads a page until the locator matches: rows are published shortly after the response."""
    for _ in range(60):
        page.goto(path)
        if locator.count():
            return
        time.sleep(0.2)
    pytest.fail(f"{path} never showed it:\n{page.inner_text('main')[:2000]}")


def test_a_key_from_its_creation_to_its_revocation(chromium, running):
    import openai

    page, console = signed_in(chromium, running, **LOOKS["light"])
    home = f"{running.base}/dashboard"
    page.get_by_role("navigation", name="Pages").get_by_role("link", name="Keys").click()
    page.get_by_label("Name").fill("browser test")
    page.get_by_label("Requests a minute").fill("100")
    page.get_by_role("button", name="Create key").click()
    secret = page.locator("#secret").inner_text().strip()
    assert re.fullmatch(r"sk-tg-[\w-]{49}", secret)

    client = openai.OpenAI(base_url=running.url, api_key=secret, max_retries=0)
    answer = client.chat.completions.create(
        model="sandbox/echo", messages=[{"role": "user", "content": "hello from a browser test"}]
    )
    assert answer.choices[0].message.content == "You said: hello from a browser test"

    reload_until(page, home + "/requests", page.locator("td", has_text="browser test"))
    page.get_by_role("row").filter(has_text="browser test").get_by_role("link").click()
    assert "complete answer" in page.inner_text("main")

    page.goto(home + "/usage?range=24h")
    chart = page.get_by_role("img", name=re.compile("^Cost by model"))
    assert chart.locator("rect.s0").count() == 1
    chart.locator("rect.s0").hover()
    # other tests of this file spend as well
    assert re.search(r"sandbox/echo: \$0\.0*[1-9]", page.locator(".tip").inner_text())

    page.goto(home + "/keys")
    assert secret not in page.content()
    page.get_by_role("link", name="browser test").click()
    page.get_by_text("Revoke …").click()
    page.get_by_role("button", name="Yes, revoke browser test").click()
    assert "refused from now on" in page.get_by_role("status").inner_text()
    with pytest.raises(openai.AuthenticationError) as refused:
        client.chat.completions.create(model="sandbox/echo", messages=[{"role": "user", "content": "again"}])
    assert refused.value.code == "invalid_api_key"
    assert console == []


def test_an_answer_is_shown_while_it_is_streamed(chromium, running):
    page, console = signed_in(chromium, running, **LOOKS["light"])
    page.goto(f"{running.base}/dashboard/try?model=sandbox/echo")
    page.get_by_label("Message").fill("count [[tokens=80]] [[pace=25ms]]")
    page.get_by_role("button", name="Send").click()
    wait_until(lambda: len(page.locator("[data-text]").inner_text()) > 20)
    early = len(page.locator("[data-text]").inner_text())
    wait_until(lambda: "tokens in" in page.locator("[data-facts]").inner_text())
    assert len(page.locator("[data-text]").inner_text()) > early
    answered = page.locator("[data-facts]").inner_text().split(" · ")[-1]
    page.get_by_label("Message").fill("[[error=503]]")
    page.get_by_role("button", name="Send").click()
    page.wait_for_selector("[data-text].failed")
    assert "overloaded" in page.locator("[data-text]").inner_text()
    failed = page.locator("[data-facts]").inner_text()
    assert failed.startswith("req_") and answered.startswith("req_") and failed != answered, (
        "what to look for in Requests"
    )
    page.get_by_label("Message").fill("語" * 120_000)
    page.get_by_role("button", name="Send").click()
    wait_until(lambda: "too long for this page" in page.locator("[data-text]").inner_text())
    page.context.clear_cookies(name="tollgate")
    page.get_by_label("Message").fill("a long text")
    page.get_by_role("button", name="Send").click()
    wait_until(lambda: "Your session has ended" in page.locator("[data-text]").inner_text())
    assert page.get_by_label("Message").input_value() == "a long text"
    assert all("503" in line or "500" in line or "413" in line for line in console)


def test_an_answer_in_content_parts_is_shown_as_text(chromium, running):
    page, _ = signed_in(chromium, running, **LOOKS["light"])
    page.goto(f"{running.base}/dashboard/try?model=sandbox/echo")
    deltas = [
        {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "so far"}]}]},
        {"content": [{"type": "text", "text": "so "}, {"type": "text", "text": "good"}, {"type": "reference"}]},
        {"content": None, "refusal": ", but no"},
    ]
    events = "".join(f"data: {json.dumps({'choices': [{'delta': delta}]})}\n\n" for delta in deltas)
    page.route("**/try/stream", lambda route: route.fulfill(content_type="text/event-stream", body=events))
    page.get_by_label("Message").fill("hi")
    page.get_by_role("button", name="Send").click()
    wait_until(lambda: page.locator("[data-text]").inner_text() == "so good, but no")
    assert page.locator("[data-reasoning-text]").text_content() == "so far"


def test_a_double_click_sends_a_form_once(chromium, running):
    page, _ = signed_in(chromium, running, **LOOKS["light"])
    page.goto(f"{running.base}/dashboard/keys")
    page.get_by_label("Name").fill("double click")
    sent = []
    page.route("**/dashboard/keys", lambda route: sent.append(route))
    button = page.get_by_role("button", name="Create key")
    button.scroll_into_view_if_needed()
    place = button.bounding_box()
    for _ in range(2):
        page.mouse.click(place["x"] + 5, place["y"] + 5)
        page.wait_for_timeout(50)
    assert len(sent) == 1
    sent[0].continue_()
    assert page.locator("#secret").inner_text().startswith("sk-tg-")


def test_a_filter_can_be_chosen_by_keyboard(chromium, running):
    page, _ = signed_in(chromium, running, **LOOKS["light"])
    page.goto(f"{running.base}/dashboard/requests")
    outcome = page.get_by_label("Outcome")
    outcome.focus()
    page.keyboard.press("ArrowDown")
    page.wait_for_timeout(50)
    page.keyboard.press("ArrowDown")
    assert outcome.input_value() == "failed" and page.url.endswith("/requests")
    page.get_by_role("button", name="Show").press("Enter")
    page.wait_for_url("**outcome=failed*")
    outcome.select_option("ok")
    page.wait_for_url("**outcome=ok*")


def test_a_download_that_fails_shows_why(chromium, running):
    """A link with `download` would discard the page with the reason."""
    page, _ = signed_in(chromium, running, **LOOKS["light"])
    page.goto(f"{running.base}/dashboard/try?model=sandbox/echo")
    page.get_by_label("Message").fill("hi")
    page.get_by_role("button", name="Send").click()
    wait_until(lambda: "tokens in" in page.locator("[data-facts]").inner_text())
    reload_until(page, f"{running.base}/dashboard/usage?range=24h", page.get_by_role("link", name="CSV"))
    with page.expect_download() as downloaded:
        page.get_by_role("link", name="CSV").click()
    assert downloaded.value.suggested_filename == "tollgate-usage-default-24h.csv"
    page.context.clear_cookies(name="tollgate")
    page.get_by_role("link", name="CSV").click()
    page.wait_for_url("**/dashboard/sign-in?next=*")


def test_the_pages_work_without_javascript(chromium, running):
    page, _ = signed_in(chromium, running, java_script_enabled=False, **LOOKS["light"])
    page.goto(f"{running.base}/dashboard/keys")
    page.get_by_label("Name").fill("no scripts")
    page.get_by_role("button", name="Create key").click()
    assert page.locator("#secret").inner_text().startswith("sk-tg-")
    page.goto(f"{running.base}/dashboard/try?model=sandbox/echo")
    page.get_by_label("Key").select_option(
        label=next(
            text for text in page.get_by_label("Key").locator("option").all_inner_texts() if "no scripts" in text
        )
    )
    page.get_by_label("Message").fill("without scripts")
    page.get_by_role("button", name="Send").click()
    assert "You said: without scripts" in page.inner_text("main")
    page.get_by_role("button", name="Dark").first.click()
    assert page.locator("html").get_attribute("data-theme") == "dark"
    page.get_by_role("button", name="Sign out").click()
    assert "You are signed out." in page.inner_text("main")


def test_all_controls_can_be_reached_by_keyboard(chromium, running):
    page, _ = signed_in(chromium, running, **LOOKS["light"])
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to content"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    page.goto(f"{running.base}/dashboard/keys")
    reached = set()
    for _ in range(60):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.name || document.activeElement.textContent.trim()"))
    assert {
        "name",
        "expires",
        "models",
        "cap",
        "window",
        "rpm",
        "tpm",
        "strict",
        "Create key",
        "Sign out",
        "Usage",
    } <= reached


@pytest.mark.parametrize("look", ["light", "dark"])
def test_all_text_has_enough_contrast(chromium, running, look):
    page, _ = signed_in(chromium, running, **LOOKS[look])
    page.goto(f"{running.base}/dashboard/keys")
    key = page.get_by_role("link", name="first key").get_attribute("href").removeprefix("/dashboard")
    for path in (*PAGES.values(), key, "/operator/accounts/default", "/account"):
        page.goto(f"{running.base}/dashboard{path}")
        page.evaluate(OPEN)
        assert page.evaluate(FAINT) == [], path


def test_the_page_of_a_request_with_tiered_prices_fits_every_width(chromium, running):
    import openai

    client = openai.OpenAI(base_url=running.url, api_key=running.key)
    client.chat.completions.create(
        model="tiered/echo", messages=[{"role": "user", "content": "hi"}], user="unbroken" * 40
    )
    page, _ = signed_in(chromium, running, **LOOKS["phone"])
    row = page.get_by_role("row").filter(has_text="tiered/echo")
    reload_until(page, f"{running.base}/dashboard/requests", row)
    row.get_by_role("link").click()
    assert '"min_prompt_tokens":200000' in page.inner_text("main")
    for width in (320, 390, 1024, 1280, 1600):
        page.set_viewport_size({"width": width, "height": 844})
        assert page.evaluate(FITS), width


@pytest.mark.parametrize("look", LOOKS)
def test_pages_fit_every_width_and_obey_the_security_policy(chromium, running, look):
    """Nothing is wider than the screen and the policy blocks nothing. The screenshots are for review."""
    import openai

    client = openai.OpenAI(base_url=running.url, api_key=running.key)
    for number in range(6):
        client.chat.completions.create(
            model="sandbox/echo", messages=[{"role": "user", "content": "word " * (number + 1)}]
        )
    running.cli("keys", "create", "--name", "unbroken" * 12)
    page, console = signed_in(chromium, running, **LOOKS[look])
    reload_until(page, f"{running.base}/dashboard/requests", page.locator("td", has_text="first key"))
    wrong = running.folder / "providers" / "wrong.yaml"  # shows the mark of a mistake on every page
    wrong.write_text("provider: wrong\n")
    reload_until(page, f"{running.base}/dashboard/operator/config", page.get_by_text("the files are wrong"))
    ARTEFACTS.mkdir(exist_ok=True)
    for name, path in PAGES.items():
        page.goto(f"{running.base}/dashboard{path}")
        page.screenshot(path=ARTEFACTS / f"dashboard-{look}-{name}.png", full_page=True)
        page.evaluate(OPEN)
        assert page.evaluate(FITS), name
        if look == "phone":  # also as narrow as a page magnified four times (WCAG 2.2, 1.4.10)
            page.set_viewport_size({"width": 320, "height": 844})
            assert page.evaluate(FITS), name
            page.set_viewport_size(LOOKS[look]["viewport"])
    page.goto(f"{running.base}/dashboard")
    for width in (page.viewport_size["width"], 320):
        page.set_viewport_size({"width": width, "height": 844})
        assert page.evaluate(LARGE) == 0, width
    if look == "dark":  # on paper: every column of the widest tables, and ink that can be read
        page.emulate_media(media="print")
        page.set_viewport_size({"width": 718, "height": 1046})  # A4 within its margins
        for path in ("/operator/usage", "/operator/requests"):
            page.goto(f"{running.base}/dashboard{path}")
            assert page.evaluate(FITS) and page.evaluate(CUT) == 0, path
        assert page.evaluate("getComputedStyle(document.documentElement).colorScheme") == "light"
    wrong.unlink()
    reload_until(
        page, f"{running.base}/dashboard/operator/config", page.locator("body", has_not_text="the files are wrong")
    )
    assert console == []
