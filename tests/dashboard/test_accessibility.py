"""Pages usable by keyboard and screen reader: structure, names, labels."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest_asyncio

from .conftest import browsers, chat_sender, gateway

VOID = {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"}
SHAPES = {"path", "rect", "circle"}
PATHS = [
    "",
    "/keys",
    "/keys/{key}",
    "/usage?range=1h",
    "/requests",
    "/requests/{request}",
    "/credits",
    "/account",
    "/models",
    "/models/sandbox/echo",
    "/try",
    "/images",
    "/nowhere",
    "/operator/accounts",
    "/operator/accounts/default",
    "/operator/usage",
    "/operator/requests",
    "/operator/providers",
    "/operator/live",
    "/operator/config",
]


class Page(HTMLParser):
    """Parses a page and records tags that do not nest."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str], tuple[str, ...]]] = []
        self.wrong: list[str] = []
        self.feed(text)
        self.wrong += [f"<{tag}> is not closed" for tag in self.open]

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, {name: value or "" for name, value in attributes}, tuple(self.open)))
        if tag not in VOID and not (tag in SHAPES and self.get_starttag_text().endswith("/>")) and tag != "option":
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.tags.append((tag, {name: value or "" for name, value in attributes}, tuple(self.open)))

    def handle_endtag(self, tag):
        if tag == "option":
            return
        if not self.open or self.open[-1] != tag:
            self.wrong.append(f"</{tag}> closes {self.open[-1:]} at {self.getpos()}")
        if tag in self.open:
            while self.open.pop() != tag:
                pass

    def all(self, *names: str):
        return [(tag, attributes, within) for tag, attributes, within in self.tags if tag in names]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pages(tmp_path_factory):
    """Every page once, as an operator sees it after a successful and a failed request."""
    async with gateway(tmp_path_factory.mktemp("pages")) as app, browsers(app) as browser:
        send_chat, operator = chat_sender(app), await browser().sign_in("default")
        await send_chat(app.key)
        await send_chat(app.key, "[[error=503]]")
        key = (await app.services.ledger.list_keys())[0].id
        request = re.search(r"/requests/(req_\w+)", (await operator.get("/requests")).text)[1]
        return {path: Page((await operator.get(path.format(key=key, request=request))).text) for path in PATHS}


def test_pages_are_well_formed(pages):
    assert {path: page.wrong for path, page in pages.items() if page.wrong} == {}


def test_every_field_has_a_label(pages):
    for path, page in pages.items():
        labels = {attributes.get("for") for _, attributes, _ in page.all("label")}
        for _, field, _ in page.all("input", "select", "textarea"):
            if field.get("type") != "hidden" and field.get("aria-hidden") != "true":
                assert field.get("id") in labels, (path, field)


def test_ids_are_unique_and_references_resolve(pages):
    for path, page in pages.items():
        ids = [attributes["id"] for _, attributes, _ in page.tags if "id" in attributes]
        assert len(ids) == len(set(ids)), (path, sorted(id for id in ids if ids.count(id) > 1))
        for _, attributes, _ in page.tags:
            for name in ("aria-labelledby", "aria-describedby", "list"):
                for target in attributes.get(name, "").split():
                    assert target in ids, (path, name, target)


def test_every_page_has_one_heading_one_main_and_a_language(pages):
    for path, page in pages.items():
        assert len(page.all("h1")) == 1 and len(page.all("main")) == 1, path
        assert page.all("html")[0][1]["lang"] == "en" and len(page.all("title")) >= 1


def test_tables_have_captions_and_header_scopes(pages):
    for path, page in pages.items():
        assert len(page.all("table")) == len(page.all("caption")), path
        assert all(attributes.get("scope") in ("col", "row") for _, attributes, _ in page.all("th")), path


def test_images_have_alternative_texts(pages):
    for path, page in pages.items():
        assert all(attributes.get("alt") for _, attributes, _ in page.all("img")), path
        for _, attributes, _ in page.all("svg"):
            assert (
                attributes.get("aria-hidden") == "true"
                or attributes.get("aria-labelledby")
                or attributes.get("aria-label")
            ), (path, attributes)


def test_the_current_page_is_marked(pages):
    for path, page in pages.items():
        if path != "/nowhere":
            current = [
                attributes["href"]
                for _, attributes, within in page.all("a")
                if attributes.get("aria-current") == "page"
            ]
            assert len(current) == 1, (path, current)


def test_scrollable_parts_can_be_focused_by_keyboard(pages):
    for path, page in pages.items():
        for _, attributes, _ in page.all("div"):
            if attributes.get("class") == "scroll":
                assert attributes["tabindex"] == "0" and attributes["role"] == "region" and attributes["aria-label"], (
                    path
                )
        for _, attributes, _ in page.all("pre"):
            assert attributes["tabindex"] == "0" and attributes["role"] == "group" and attributes["aria-label"], path


def test_the_forms_of_a_page_have_different_names(pages):
    for path, page in pages.items():
        names = [attributes["aria-label"] for _, attributes, _ in page.all("form") if "aria-label" in attributes]
        assert len(names) == len(set(names)), (path, names)


MISTAKES = (
    ("/keys", "/keys", {"expires": "soon"}, "expires", "wanted a span such as 30d"),
    ("/keys", "/keys", {"cap": "lots"}, "cap", "no exact decimal"),
    ("/keys/{key}", "/keys/{key}", {"addresses": "nowhere"}, "addresses", "wanted addresses and networks"),
    ("/account", "/account/password", {"new": "short", "again": "short"}, "new", "10 to 200"),
    ("/account", "/account/password", {"new": "long enough", "again": "something else"}, "again", "differ"),
    ("/operator/accounts", "/operator/accounts", {"id": "No Word"}, "id", "wanted lower-case letters"),
    ("/operator/accounts/default", "/operator/accounts/default/grant", {"amount": "much"}, "amount", "no exact"),
    ("/images", "/images", {"key": "{key}", "input": "{"}, "input", "not valid JSON"),
    ("/try", "/try", {"key": "{key}", "prompt": "hi", "temperature": "hot"}, "temperature", "wanted a number"),
    ("/try", "/try", {"key": "{key}", "prompt": " "}, "prompt", "write something"),
)


async def test_a_field_with_a_mistake_is_described_by_the_error_and_its_hint(app, operator):
    key = (await app.services.ledger.list_keys())[0].id
    for path, action, fields, id, message in MISTAKES:
        form = (await operator.get(path.format(key=key))).text
        once = re.search(r'name="once" value="([^"]+)"', form)
        sent = {name: value.replace("{key}", key) for name, value in fields.items()}
        reply = await operator.post(action.format(key=key), **({"once": once[1]} if once else {}), **sent)
        field = next(each for _, each, _ in Page(reply.text).tags if each.get("id") == id)
        described = field.get("aria-describedby", "").split()
        assert field.get("aria-invalid") == "true" and "autofocus" in field, (id, field)
        assert described[:1] == ["problem"], (id, field)
        assert message in re.search(r'id="problem">([^<]*)<', reply.text)[1], id
        assert all(f'id="{each}"' in reply.text for each in described), id
        assert (f"{id}-help" in described) is (f'id="{id}-help"' in reply.text), id
