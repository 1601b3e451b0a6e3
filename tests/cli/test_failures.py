"""Commands that fail print one line with the reason, no traceback, and set their exit code."""

from __future__ import annotations

import io
import json
import os
import re
import socket
import subprocess
import sys

import pytest

from support.running import environment
from tollgate.cli import main

CASES = {
    ("serve", "--instance", "eu 1"): (2, '"eu 1" is no name of a gateway'),
    ("serve", "--bind", "nonsense"): (2, '"nonsense" is no address'),
    ("sandbox", "--bind", "nonsense"): (2, '"nonsense" is no address'),
    ("sandbox", "--bind", "127.0.0.1:99999"): (2, '"127.0.0.1:99999" is no address'),
    ("sandbox", "--bind", "unix:/x"): (2, '"unix:/x" is no address'),
    ("init", "/proc/nowhere"): (1, "/proc/nowhere"),
    ("credits", "grant", "default", "0.0000000000001"): (1, "no account"),
    ("serv",): (2, "No such command 'serv'"),
    ("keys", "create"): (1, 'no account "default": make it with `tollgate accounts create default`'),
    ("keys", "create", "alice"): (2, "(did you mean --account alice?)"),
    ("check", "gateway.yaml"): (2, "(did you mean --config gateway.yaml?)"),
    ("usage", "requests", "req_75dbee004f82"): (2, "(did you mean --text req_75dbee004f82?)"),
    ("accounts", "create", "alice", "bob"): (2, "unexpected extra argument (bob)\n"),
    ("usage", "--sql", "selec"): (1, "syntax error"),
    ("usage", "--since", "yesterday"): (2, '"yesterday" is no time'),
    ("usage", "--since", "0001-01-01T00:00+14:00"): (2, "is no time"),
    ("models", "no-such*"): (1, "no model matches"),
    ("check", "--config", "/nowhere.yaml"): (1, "cannot be read"),
    ("convert", "--from", "chat", "--to", "no-such", "/dev/null"): (2, "no mapping is called no-such"),
    ("catalog", "import", "gateway.yaml"): (1, "gateway.yaml: found no JSON"),
    ("catalog", "import", "deep.json"): (1, "deep.json: found no JSON: maximum recursion depth exceeded"),
}

GATEWAY = "server: {engine: hypercorn}\n"
AS_PROCESS = [words for words in CASES if words[0] in ("serve", "sandbox", "serv", "usage")]
"""Servers set up logging, which other tests would see; of the other commands, some of each exit code are enough."""


def run(folder, *words):
    return subprocess.run(
        [sys.executable, "-m", "tollgate", *words],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
        stdin=subprocess.DEVNULL,
    )


def check(words, returncode, out, err):
    code, message = CASES[words]
    assert (returncode, out if code == 2 else "") == (code, "") and message in err, err
    assert "Traceback" not in err
    assert ("\nError: " in f"\n{err}") == (code == 2), "click's prefix only for an invalid command line"


@pytest.mark.parametrize("words", [words for words in CASES if words not in AS_PROCESS], ids=" ".join)
def test_a_failure_is_reported_in_one_message(tollgate, words):
    tollgate.write("gateway.yaml", GATEWAY)
    tollgate.write("deep.json", "[" * 100_000)
    done = tollgate(*words)
    check(words, done.code, done.out, done.err)


@pytest.mark.parametrize("words", AS_PROCESS, ids=" ".join)
def test_a_process_reports_its_failure_in_one_message(tmp_path, words):
    (tmp_path / "gateway.yaml").write_text(GATEWAY)
    done = run(tmp_path, *words)
    check(words, done.returncode, done.stdout, done.stderr)


def test_the_sandbox_reports_an_address_in_use(tmp_path):
    with socket.socket() as occupied:
        occupied.bind(("127.0.0.1", 0))
        occupied.listen()
        address = f"127.0.0.1:{occupied.getsockname()[1]}"
        done = run(tmp_path, "sandbox", "--bind", address)
        assert (done.returncode, done.stderr) == (
            1,
            f"the sandbox could not listen on {address}: Address already in use\n",
        )


def test_a_folder_without_a_store_is_reported_once(tollgate):
    first, second = tollgate("keys", "list"), tollgate("keys", "list")
    assert first.err == "there was no store in var, so this is a new one; the one of a gateway elsewhere: --config\n"
    assert (first.code, second.code, second.err) == (0, 0, "")


def test_root_is_warned_of_writing_into_another_user_s_store(tollgate, tmp_path, monkeypatch):
    """The service cannot open files that root creates there, and does not start."""
    assert tollgate("accounts", "create", "alice").code == 0
    if os.geteuid() == 0:
        os.chown(tmp_path / "var", 4241, -1)
    monkeypatch.setattr("tollgate.cli.books.os.geteuid", lambda: 0)
    assert re.match(r"warning: var is \S+'s, and this runs as root: ", tollgate("keys", "list").err)
    (tmp_path / "var" / "admin.sock").touch()  # a gateway is running, which makes the changes
    assert tollgate("keys", "list").err == ""


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")
@pytest.mark.parametrize("words", [("models", "--help"), ("--version",)], ids=" ".join)
def test_output_that_cannot_be_written_is_one_line_and_exit_code_1(tmp_path, words):
    """The interpreter added two lines and ended with 120, unless PYTHONUNBUFFERED was set."""
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "tollgate", *words],
            cwd=tmp_path,
            env=environment(),
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
        )
    assert (done.returncode, done.stderr) == (1, "[Errno 28] No space left on device\n")


def test_what_a_locale_cannot_show_is_escaped_and_json_is_utf_8_in_all(tollgate, monkeypatch):
    """A table's rule ended every command with a traceback where the locale's encoding is Latin-1."""
    said = []
    for words in ((), ("--json",)):
        monkeypatch.setattr("sys.stdout", io.TextIOWrapper(io.BytesIO(), "latin-1"))
        with pytest.raises(SystemExit, match="0"):
            main(["usage", "--sql", "SELECT 'é漢' AS x", *words])
        said.append(sys.stdout.buffer.getvalue())
    assert b" \xe9\\u6f22 " in said[0] and b"\\u2500\\u2500" in said[0]
    assert json.loads(said[1].decode()) == [{"x": "é漢"}]


def test_an_argument_that_is_no_text_is_named(tollgate, monkeypatch):
    words = ("accounts", "create", "zoe", "--name", "Zo\udceb")
    monkeypatch.setattr("sys.argv", ["tollgate", *words])
    done = tollgate(*words)
    assert (done.code, done.err.splitlines()[-1]) == (1, "an argument is not valid UTF-8: Zo\\udceb")
