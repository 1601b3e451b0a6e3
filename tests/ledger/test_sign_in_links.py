"""Sign-in links: single use, valid for 15 minutes, stored as hashes."""

from tollgate.ledger.sign_in_links import LINK_SECONDS, SignInLinks


async def test_a_link_works_once():
    links = SignInLinks()
    token = await links.make("alice")
    assert await links.look(token) == "alice"
    assert await links.take(token) == "alice"
    assert await links.take(token) is None and await links.look(token) is None


async def test_a_link_expires_after_fifteen_minutes():
    now = 0.0
    links = SignInLinks(clock=lambda: now)
    token = await links.make("alice")
    now = LINK_SECONDS - 1
    assert await links.look(token) == "alice"
    now = LINK_SECONDS
    assert await links.take(token) is None


async def test_a_token_is_not_stored_in_plain_text():
    links = SignInLinks()
    token = await links.make("alice")
    assert token not in repr(vars(links))


async def test_the_number_of_links_is_bounded():
    links = SignInLinks()
    first = await links.make("alice")
    for _ in range(1000):
        await links.make("alice")
    assert await links.look(first) is None
