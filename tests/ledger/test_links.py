"""Sign-in links work once, for a quarter of an hour, and are known by their hash only."""

from tollgate.ledger.links import LINK_SECONDS, SignInLinks


def test_a_link_works_once():
    links = SignInLinks()
    token = links.make("alice")
    assert links.look(token) == "alice"
    assert links.take(token) == "alice"
    assert links.take(token) is None and links.look(token) is None


def test_a_link_ends_after_fifteen_minutes():
    now = 0.0
    links = SignInLinks(clock=lambda: now)
    token = links.make("alice")
    now = LINK_SECONDS - 1
    assert links.look(token) == "alice"
    now = LINK_SECONDS
    assert links.take(token) is None


def test_a_token_is_not_kept_in_clear():
    links = SignInLinks()
    token = links.make("alice")
    assert token not in repr(vars(links))


def test_many_links_do_not_fill_the_memory():
    links = SignInLinks()
    first = links.make("alice")
    for _ in range(1000):
        links.make("alice")
    assert links.look(first) is None
