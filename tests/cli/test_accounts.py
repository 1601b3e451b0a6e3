"""`tollgate accounts`, on the store itself and through a running gateway."""

from __future__ import annotations

import json

from .tollgate import Tollgate


def test_an_account_is_created_listed_and_shown(tollgate: Tollgate) -> None:
    assert (
        "alice is there with 10 credits"
        in tollgate("accounts", "create", "alice", "--name", "Alice", "--credits", "10").out
    )
    assert "alice" in tollgate("accounts", "list").out
    assert "Alice" in tollgate("accounts", "show", "alice").out
    shown = json.loads(tollgate("accounts", "show", "alice", "--json").out)
    assert (shown["id"], shown["balance"], shown["role"], shown["keys"]) == ("alice", "10", "user", [])
    [listed] = json.loads(tollgate("accounts", "list", "--json").out)
    assert listed["granted"] == "10"


def test_mistakes_exit_with_1_and_a_message_on_stderr(tollgate: Tollgate) -> None:
    tollgate("accounts", "create", "alice")
    for words, reason in (
        (("accounts", "create", "alice"), 'account "alice" exists already'),
        (("accounts", "create", "Big Name"), "wanted lower-case letters"),
        (("accounts", "create", "bob", "--credits", "lots"), "credits: "),
        (("accounts", "create", "bob", "--credits", "-5"), "credits is -5, wanted more than 0"),
        (("accounts", "create", "bob", "--credits", "1.2345678901234"), "13 decimal places"),
        (("accounts", "show", "bob"), 'no account "bob"'),
    ):
        done = tollgate(*words)
        assert (done.code, done.out) == (1, ""), words
        assert reason in done.err
    assert tollgate("accounts", "create").code == 2
    empty = tollgate("accounts", "create", "bob", "--credits", "")
    assert (empty.code, empty.out) == (2, "")
    assert "'--credits': it is empty; leave it out for none" in empty.err
    unchanged = tollgate("accounts", "change", "alice")
    assert (unchanged.code, unchanged.out) == (2, "")
    assert "nothing to change; name at least one of --name, --role" in unchanged.err


def test_an_invalid_gateway_file_is_reported(tollgate: Tollgate) -> None:
    tollgate.write("gateway.yaml", "stoer: {}\n")
    done = tollgate("accounts", "list")
    assert done.code == 1
    assert "gateway.yaml:1:1" in done.err


def test_an_invalid_provider_file_is_ignored(tollgate: Tollgate) -> None:
    tollgate.write("providers/acme.yaml", "not: [a provider")
    assert tollgate("accounts", "create", "alice").code == 0


async def test_accounts_are_created_and_listed_through_a_running_gateway(running: Tollgate) -> None:
    assert (await running.in_thread("accounts", "create", "bob", "--credits", "3")).code == 0
    assert running.ledger.balance("bob") == 3
    assert "bob" in (await running.in_thread("accounts", "list")).out


async def test_a_sign_in_link_is_created_by_the_running_gateway(running):
    running.ledger.links.address = "http://127.0.0.1:8787/dashboard/link/"
    done = await running.in_thread("accounts", "link", "--account", "alice")
    assert done.code == 0
    address, _, token = done.out.strip().rpartition("/")
    assert address == "http://127.0.0.1:8787/dashboard/link"
    assert await running.ledger.links.look(token) == "alice"


async def test_changes_return_json_for_scripts(running: Tollgate) -> None:
    async def run(*words: str) -> dict[str, object]:
        found: dict[str, object] = json.loads((await running.in_thread(*words, "--json")).out)
        return found

    running.ledger.links.address = "http://127.0.0.1:8787/dashboard/link/"
    made = await run("accounts", "create", "bob", "--credits", "3")
    facts = {"id": "bob", "name": "bob", "role": "user", "active_keys": 0, "created_at": made["created_at"]}
    assert made == facts | {"granted": "3", "spent": "0", "balance": "3", "held": "0"}
    assert await run("accounts", "change", "bob", "--name", "Bob B") == made | {"name": "Bob B"}
    link = await run("accounts", "link", "--account", "bob")
    assert await running.ledger.links.look(str(link["url"]).rpartition("/")[2]) == link["account_id"] == "bob"
    [key] = await running.ledger.list_keys("alice")
    revoked = await run("keys", "revoke", "laptop", "--yes")
    assert revoked == {"id": key.id, "account_id": "alice", "name": "laptop", "revoked": True}


async def test_a_sign_in_link_requires_an_account_and_a_dashboard(running):
    done = await running.in_thread("accounts", "link", "--account", "bob")
    assert (done.code, done.err.strip()) == (1, 'no account "bob"')
    done = await running.in_thread("accounts", "link", "--account", "alice")
    assert done.code == 1 and "has no dashboard" in done.err


def test_a_sign_in_link_requires_a_running_gateway(tollgate):
    tollgate("accounts", "create", "alice")
    done = tollgate("accounts", "link", "--account", "alice")
    assert done.code == 1 and "no gateway is running" in done.err


def test_the_password_prompt_requires_a_terminal(tollgate):
    refused = tollgate("accounts", "password", "default", stdin="correct horse battery\n")
    assert (refused.code, refused.out, refused.err) == (
        1,
        "",
        "there is no terminal to ask for the password at; to read it from stdin: --stdin\n",
    )


def test_an_unknown_account_is_reported_before_the_password_prompt(tollgate, monkeypatch):
    monkeypatch.setattr("tollgate.cli.accounts.at_terminal", lambda: True)
    tollgate("accounts", "create", "alice")
    assert tollgate("accounts", "password", "nobody", stdin="x\nx\n").err == 'no account "nobody"\n'
    assert "new password" in tollgate("accounts", "password", "alice", stdin="correct horse battery\n" * 2).out


def test_a_password_is_set_from_stdin_and_removed(tollgate):
    tollgate("accounts", "create", "alice")
    assert tollgate("accounts", "password", "alice", "--stdin", stdin="short\n").code == 1
    assert "new password" in tollgate("accounts", "password", "alice", "--stdin", stdin="correct horse battery\n").out
    assert "no password any more" in tollgate("accounts", "password", "alice", "--remove").out


def test_a_role_and_a_name_are_changed(tollgate):
    tollgate("accounts", "create", "alice")
    assert tollgate("accounts", "change", "alice", "--role", "operator", "--name", "Alice A.").code == 0
    assert '"role": "operator"' in tollgate("accounts", "show", "alice", "--json").out


def test_the_only_operator_cannot_become_a_user(tollgate):
    for account in ("alice", "bob"):
        tollgate("accounts", "create", account, "--role", "operator")
    assert tollgate("accounts", "change", "alice", "--role", "user").code == 0
    refused = tollgate("accounts", "change", "bob", "--role", "user", "--name", "Bob")
    assert (refused.code, refused.out) == (
        1,
        "",
    ) and 'account "bob" is the only operator; make another account one first' in refused.err
    kept = json.loads(tollgate("accounts", "show", "bob", "--json").out)
    assert (kept["role"], kept["name"]) == ("operator", "bob")
    assert tollgate("accounts", "change", "alice", "--role", "user").code == 0, "no change is no error"
