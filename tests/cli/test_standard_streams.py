import logging
import os
import select
import subprocess
import sys
import threading
from types import SimpleNamespace

import pytest

from tollgate.cli import main
from tollgate.cli.serve import _announce
from tollgate.cli.standard_streams import BesideHandler


@pytest.fixture
def pipe():
    """The two ends of a pipe. A test that closes one sets it to None."""
    ends = list(os.pipe())
    yield ends
    for end in ends:
        if end is not None:
            os.close(end)


def _log(handler, *lines):
    for line in lines:
        handler.emit(logging.LogRecord("tollgate", logging.INFO, "", 0, line, None, None))


def test_lines_are_written_in_order_and_complete_after_a_flush(pipe):
    handler = BesideHandler(pipe[1])
    _log(handler, "one", "two \ud800", "three")
    handler.flush()
    assert os.read(pipe[0], 100) == b"one\ntwo \\ud800\nthree\n"


def test_control_characters_of_a_line_are_written_escaped(pipe):
    handler = BesideHandler(pipe[1])
    _log(handler, "a\tb\x1b[2Jc\r\x9b1;1H\nd\x7f é")
    handler.flush()
    assert os.read(pipe[0], 100).decode() == "a\tb\\x1b[2Jc\\x0d\\x9b1;1H\nd\\x7f é\n"


def test_a_stalled_reader_of_the_log_blocks_nothing_and_sees_how_much_was_dropped(pipe):
    """A pipe buffers 64 KiB; the next write on the event loop would block the gateway, including its health check."""
    handler = BesideHandler(pipe[1], most_bytes=200_000)
    _log(handler, *("x" * 999 for _ in range(1000)))
    reader = _PipeReader(pipe[0])
    reader.wait_until(lambda: reader.whole + reader.left_out == 1000)
    assert 199 <= reader.whole <= 300, "as many as the pipe and the handler buffer"
    handler.flush()
    _log(handler, "and on")
    reader.wait_until(lambda: reader.lines[-1] == "and on")


class _PipeReader:
    """What was read from a pipe so far."""

    def __init__(self, end):
        self._end = end
        self._text = b""

    def wait_until(self, condition):
        while not condition():
            assert select.select([self._end], [], [], 30)[0], f"nothing more came after {self.lines[-1:]}"
            self._text += os.read(self._end, 1 << 16)

    @property
    def lines(self):
        return self._text.decode().splitlines()

    @property
    def whole(self):
        return self.lines.count("x" * 999)

    @property
    def left_out(self):
        return sum(int(line.split()[0]) for line in self.lines if line.endswith("for too long"))


def test_a_closed_reader_of_the_log_loses_only_its_lines(pipe):
    handler = BesideHandler(pipe[1])
    os.close(pipe[0])
    pipe[0] = None
    _log(handler, "one", "two")
    handler.flush()
    assert handler._bytes == 0
    assert any(thread.name == "log" and thread.is_alive() for thread in threading.enumerate())


@pytest.mark.parametrize("closed", [(0,), (1,), (2,), (0, 1, 2)], ids=str)
def test_closed_standard_streams_are_opened_on_dev_null(closed):
    """Otherwise a socket gets the number, and uvloop aborts the process when it closes a descriptor below three."""
    program = """
import os, sys
from tollgate.cli.standard_streams import open_all
open_all()
print("taken", file=sys.stdout, flush=True), sys.stderr.write("taken"), sys.stdin.fileno()
os._exit(os.pipe()[0])
"""
    shut = " ".join(f"{number}>&-" for number in closed)
    ended = subprocess.run(["sh", "-c", f'exec "$0" -c "$1" {shut}', sys.executable, program], timeout=60)
    assert ended.returncode > 2


def _opened(**server):
    server = SimpleNamespace(**{"base_url": "http://127.0.0.1:8787", "bind": ("127.0.0.1:8787",), **server})
    current = SimpleNamespace(
        gateway=SimpleNamespace(server=server), catalog=SimpleNamespace(example=lambda: "sandbox/echo")
    )
    services = SimpleNamespace(runtime=SimpleNamespace(current=current))
    return SimpleNamespace(services=services, first_key="sk-tg-0", initial_account="default", sign_in=None)


def test_a_start_on_a_unix_socket_alone_marks_its_address_as_a_guess(capsys):
    socket = ("unix:/run/tollgate/http.sock",)
    guessed = []
    for server in ({}, {"bind": socket}, {"bind": socket, "base_url": "https://gateway.example"}):
        _announce(_opened(**server))
        guessed.append("a guess" in capsys.readouterr().out)
    assert guessed == [False, True, False]


def test_a_start_whose_output_cannot_be_written_still_serves(monkeypatch, caplog):
    """`tollgate serve | true` failed with "Broken pipe" after it had created the first key, which nobody had seen."""
    opened = _opened()
    with open("/dev/full", "w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        _announce(opened)
        print("taken, by nothing", flush=True)
    assert "No space left on device" in caplog.text
    assert "tollgate keys create --account default" in caplog.text


@pytest.mark.parametrize("closed", ["stdin", "stdout", "stderr"])
def test_every_command_opens_a_closed_standard_stream(monkeypatch, closed):
    """`usage --format parquet >&-` ended with a traceback, and a database got the number of standard output."""
    monkeypatch.setattr(sys, closed, None)
    with pytest.raises(SystemExit):
        main(["--version"])
    assert getattr(sys, closed).fileno() in range(3)
