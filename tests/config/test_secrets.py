"""Secret references: where values come from, what an unset one does, and that values are never shown."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from config.golden import messages_of
from tollgate.config.build import Loaded, load_gateway
from tollgate.config.load import walk
from tollgate.config.secrets import Secrets, note_bought
from tollgate.errors import ConfigErrors

FILE = """
provider: acme
url: https://acme.example/v1
vars: {project: $secret.ACME_PROJECT?}
speaks:
  chat: /chat
  messages: {path: /messages, headers: {x-beta: "{{ $secret.ACME_BETA? }}"}}
headers: {Authorization: "Bearer {{ $secret.ACME_KEY }}", org: $secret.ACME_ORG?}
models: {acme/a: {}}
"""
CANARY = "sk-canary-0123456789abcdef"


def load(folder: Path, environ: dict[str, str], files: dict[str, str] | None = None) -> Loaded:
    messages_of(files or {"providers/acme.yaml": FILE}, folder)
    return load_gateway(environ=environ)


def test_a_secret_is_read_from_the_environment(folder: Path) -> None:
    assert load(folder, {"ACME_KEY": CANARY}).secrets.get("ACME_KEY") == CANARY


def test_a_secret_is_read_from_a_file_without_its_last_line_end(folder: Path) -> None:
    (folder / "secrets").mkdir()
    (folder / "secrets" / "ACME_KEY").write_text(CANARY + "\n")
    loaded = load(folder, {})
    assert loaded.secrets.get("ACME_KEY") == CANARY
    assert loaded.gateway.providers["acme"].off == ""


def test_the_environment_wins_over_a_file(folder: Path) -> None:
    (folder / "keys").mkdir()
    (folder / "keys" / "ACME_KEY").write_text("from-file")
    loaded = load(folder, {"ACME_KEY": CANARY}, {"gateway.yaml": "secrets_dir: keys\n", "providers/acme.yaml": FILE})
    assert loaded.secrets.get("ACME_KEY") == CANARY


def test_a_secret_may_begin_with_the_mark_that_some_editors_write(folder: Path) -> None:
    """A configuration file may, too. No header can carry it, so every request would fail."""
    (folder / "secrets").mkdir()
    (folder / "secrets" / "ACME_KEY").write_text(CANARY, "utf-8-sig")
    assert load(folder, {}).secrets.get("ACME_KEY") == CANARY


@pytest.mark.parametrize("environ", [{}, {"ACME_KEY": ""}, {"ACME_KEY": " "}], ids=["unset", "empty", "blanks"])
def test_a_provider_without_its_secret_is_off_and_reported_once(folder: Path, environ: dict[str, str]) -> None:
    loaded = load(folder, environ)
    assert loaded.gateway.providers["acme"].off == "secret ACME_KEY is not set"
    assert loaded.notes == ("provider acme is off: secret ACME_KEY is not set",)
    assert loaded.warnings == ()


def test_several_unset_secrets_are_reported_together(folder: Path) -> None:
    file = FILE.replace("ACME_PROJECT?", "ACME_PROJECT")
    assert (
        load(folder, {}, {"providers/acme.yaml": file}).gateway.providers["acme"].off
        == "secrets ACME_PROJECT, ACME_KEY are not set"
    )


@pytest.mark.parametrize(
    ("environ", "file", "found"),
    [
        ({"ACME_API_KEY": CANARY}, "OTHER", "; found ACME_API_KEY, which no file names"),
        ({}, "acme_key", "; found acme_key, which no file names"),
        ({"ACME_API_KEY": "", "HOME": "/home"}, "OTHER", ""),
    ],
    ids=["a variable", "a file", "none"],
)
def test_a_check_names_what_may_be_a_misspelt_secret(
    folder: Path, environ: dict[str, str], file: str, found: str
) -> None:
    load(folder, environ)
    (folder / "secrets").mkdir()
    (folder / "secrets" / file).write_text(CANARY)
    loaded = load_gateway(environ=environ, everything=True)
    assert loaded.notes == (f"provider acme is off: secret ACME_KEY is not set{found}",)
    assert load_gateway(environ=environ).notes == ("provider acme is off: secret ACME_KEY is not set",)


def test_an_optional_secret_may_be_unset(folder: Path) -> None:
    assert load(folder, {"ACME_KEY": CANARY}).gateway.providers["acme"].off == ""


def test_the_question_mark_is_removed_before_compiling(folder: Path) -> None:
    provider = load(folder, {}).gateway.providers["acme"]
    assert provider.headers["org"].value == "$secret.ACME_ORG"
    assert provider.variables["project"].value == "$secret.ACME_PROJECT"
    assert provider.endpoints["messages"].headers["x-beta"].value == "{{ $secret.ACME_BETA  }}"
    assert provider.headers["org"].mark.line == 8


def test_one_line_end_is_removed_from_an_environment_variable(folder: Path) -> None:
    assert load(folder, {"ACME_KEY": CANARY + "\n"}).secrets.get("ACME_KEY") == CANARY


@pytest.mark.parametrize(
    "value",
    ['{\n "type": "service_account"\n}\n', "-----BEGIN PRIVATE KEY-----\nabc\n-----END PRIVATE KEY-----\n"],
    ids=["json", "pem"],
)
def test_a_key_file_may_have_several_lines(folder: Path, value: str) -> None:
    assert load(folder, {"ACME_KEY": value}).secrets.get("ACME_KEY") == value.rstrip()


def _write(content: bytes) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(content)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (_write(b""), "1:1: found an empty file, wanted a secret (a provider is off where the file is not there)"),
        (_write(b"\r\n"), "1:1: found an empty file, wanted a secret (a provider is off where the file is not there)"),
        (_write(CANARY.encode() + b"\xff"), "1:1: found bytes that are no UTF-8 text, wanted the secret as text"),
        (_write(b"x" * 65537), "1:1: found 65537 bytes, wanted a secret of at most 65536"),
        (_write(f"{CANARY}\n{CANARY}\n".encode()), "2:1: found a line break inside the secret, wanted one line"),
        (
            _write(f"{CANARY}\u200b".encode()),
            (
                "1:1: found the invisible character U+200B inside the secret, wanted it without (it may have come with "
                "copying)"
            ),
        ),
        (
            _write(b" \n"),
            "1:1: found an empty file, wanted a secret (a provider is off where the file is not there)",
        ),
        (Path.mkdir, "1:1: found a folder, wanted a file with the secret alone"),
        (
            lambda path: path.symlink_to(path),
            "1:1: cannot be read: Too many levels of symbolic links, wanted a secret this process may read",
        ),
    ],
    ids=[
        "empty",
        "only a line end",
        "not UTF-8",
        "too long",
        "two lines",
        "a blank of no width",
        "blanks",
        "a folder",
        "unreadable",
    ],
)
def test_an_unusable_secret_is_reported_with_its_file(folder: Path, make: Callable[[Path], object], words: str) -> None:
    (folder / "secrets").mkdir()
    make(folder / "secrets" / "ACME_KEY")
    assert messages_of({"providers/acme.yaml": FILE}, folder) == f"secrets/ACME_KEY:{words}\n"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_an_unreadable_secrets_folder_is_reported_once(folder: Path) -> None:
    (folder / "secrets").mkdir(mode=0)
    try:
        assert (
            messages_of({"providers/acme.yaml": FILE}, folder)
            == "secrets:1:1: cannot be read: Permission denied, wanted a folder this process may read\n"
        )
    finally:
        (folder / "secrets").chmod(0o700)


@pytest.mark.parametrize("line_break", ["\n", "\r\n", "\r"])
def test_environment_variables_of_two_lines_are_all_reported_by_name(folder: Path, line_break: str) -> None:
    with pytest.raises(ConfigErrors) as caught:
        load(folder, {"ACME_KEY": f"{CANARY}{line_break}x", "ACME_ORG": f"a{line_break}{CANARY}"})
    assert str(caught.value).splitlines() == [
        f"environment variable {name}:2:1: found a line break inside the secret, wanted one line"
        for name in ("ACME_KEY", "ACME_ORG")
    ]


def test_an_unusable_secret_is_reported_with_the_mistakes_of_all_files(folder: Path) -> None:
    (folder / "secrets").mkdir()
    (folder / "secrets" / "ACME_KEY").write_text("")
    (folder / "models.yaml").write_text("models: {acme/b: {context: many}}\n")
    messages = messages_of(
        {
            "gateway.yaml": "retry: {attempts: 7}\n",
            "providers/acme.yaml": FILE + "models_from: ../models.yaml\nwieght: 2\n",
        },
        folder,
    )
    places = [line.partition(": found")[0] for line in messages.splitlines() if ": found" in line or "unknown" in line]
    assert places[0].startswith("gateway.yaml:1") and any(place.startswith("models.yaml:1") for place in places), (
        messages
    )
    assert (
        "secrets/ACME_KEY:1:1: found an empty file" in messages and "wieght" in messages and "not set" not in messages
    )


def test_a_secret_file_is_not_read_if_the_environment_has_the_secret(folder: Path) -> None:
    (folder / "secrets" / "ACME_KEY").mkdir(parents=True)
    assert load(folder, {"ACME_KEY": CANARY}).secrets.get("ACME_KEY") == CANARY


def test_only_referenced_secrets_are_read(folder: Path) -> None:
    assert load(folder, {"ACME_KEY": CANARY, "OTHER": "value"}).secrets.names() == {"ACME_KEY"}


def test_the_store_url_may_be_a_secret(folder: Path) -> None:
    loaded = load(folder, {"DATABASE_URL": "postgresql://u:p@db/x"}, {"gateway.yaml": "store: $secret.DATABASE_URL\n"})
    assert loaded.gateway.store.url == "postgresql://u:p@db/x"
    assert loaded.secrets.get("DATABASE_URL") == "postgresql://u:p@db/x"


def test_no_secret_value_is_in_a_repr_or_a_message(folder: Path) -> None:
    loaded = load(folder, {"ACME_KEY": CANARY})
    assert CANARY not in repr(loaded.secrets)
    assert CANARY not in repr(loaded)
    broken = {
        "providers/acme.yaml": FILE + "wieght: 1\n",
        "gateway.yaml": "store: $secret.DATABASE_URL\nretry: {attempts: 9}\n",
    }
    messages_of(broken, folder)
    with pytest.raises(ConfigErrors) as caught:
        load_gateway(environ={"ACME_KEY": CANARY, "DATABASE_URL": f"postgresql://{CANARY}@db/x"})
    assert CANARY not in str(caught.value)


def test_redaction_removes_every_value_longest_first() -> None:
    secrets = Secrets({"A": "abcd", "B": "abcdefgh", "C": "xy"})
    assert secrets.redact("abcdefgh abcd xy") == "[secret] [secret] xy"
    assert Secrets().redact("nothing") == "nothing"


def test_redaction_recognizes_a_json_escaped_value() -> None:
    secrets = Secrets({"KEY": 'a"b/c=='})
    assert (
        secrets.redact(r'{"error": "key a\"b/c== is wrong", "other": "a\"b\/c=="}')
        == '{"error": "key [secret] is wrong", "other": "[secret]"}'
    )


def test_redaction_removes_a_token_issued_for_a_secret_whatever_the_configuration() -> None:
    note_bought("issued+token/of-test")
    assert Secrets().redact("issued+token/of-test, ?t=issued%2Btoken%2Fof-test") == "[secret], ?t=[secret]"


def test_redaction_recognizes_a_percent_encoded_value() -> None:
    assert (
        Secrets({"KEY": "a+b/c=="}).redact("Cannot POST /v1?key=a%2Bb%2Fc%3D%3D&x=1, a+b/c==")
        == "Cannot POST /v1?key=[secret]&x=1, [secret]"
    )


@pytest.mark.parametrize(
    "line",
    [
        "password: hunter2hunter2hunter2",
        "url: https://me:hunter2hunter2@host.example",
        "x: Bearer hunter2hunter2hunter2",
        "api_key: 'hunter2hunter2hunter2'",
        "x: sk-hunter2hunter2hunter2",
    ],
)
def test_a_secret_written_into_a_file_is_not_echoed(folder: Path, line: str) -> None:
    messages = messages_of({"gateway.yaml": line + "\n"}, folder)
    assert "unknown key" in messages
    assert "hunter2" not in messages


def test_a_secret_name_cannot_leave_the_folder(folder: Path) -> None:
    messages = messages_of(
        {"providers/acme.yaml": FILE.replace("$secret.ACME_ORG?", "$secret.../../etc/passwd")}, folder
    )
    assert "found `$secret` without a proper name" in messages


def test_the_tree_contains_no_secret_value(folder: Path) -> None:
    provider = load(folder, {"ACME_KEY": CANARY}).gateway.providers["acme"]
    nodes = [node for root in (*provider.headers.values(), provider.document.root) for node in walk(root)]
    assert all(CANARY not in str(getattr(node, "value", "")) for node in nodes)
