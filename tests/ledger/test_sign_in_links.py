"""Sign-in links work once, for a quarter of an hour, and are known by their hash only."""

from tollgate.ledger.sign_in_links import LINK_SECONDS, SignInLinks


async def test_a_link_works_once():
    links = SignInLinks()
    token = await links.make("alice")
    assert await links.look(token) == "alice"
    assert await links.take(token) == "alice"
    assert await links.take(token) is None and await links.look(token) is None


async def test_a_link_ends_after_fifteen_minutes():
    now = 0.0
    links = SignInLinks(clock=lambda: now)
    token = await links.make("alice")
    now = LINK_SECONDS - 1
    assert await links.look(token) == "alice"
    now = LINK_SECONDS
    assert await links.take(token) is None


async def test_a_token_is_not_kept_in_clear():
    links = SignInLinks()
    token = await links.make("alice")
    assert token not in repr(vars(links))


async def test_many_links_do_not_fill_the_memory():
    links = SignInLinks()
    first = await links.make("alice")
    for _ in range(1000):
        await links.make("alice")
    assert await links.look(first) is None
