"""An outage is logged once for each reason, and its end once."""

import logging

import pytest

from tollgate.outage import Outage

log = logging.getLogger("tollgate.test")


def logged(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    return [(record.levelname, record.getMessage()) for record in caplog.records]


def test_each_reason_and_the_end_are_logged_once(caplog):
    outage = Outage(log)
    outage.end("it works again")
    outage.begin("the disk is full", "the disk is full; 3 rows wait")
    outage.begin("the disk is full", "the disk is full; 7 rows wait")
    outage.begin("the disk is broken")
    assert outage.reason == "the disk is broken"
    outage.end("it works again")
    outage.end("it works again")
    assert outage.reason == ""
    outage.begin("the disk is full")
    assert logged(caplog) == [
        ("ERROR", "the disk is full; 3 rows wait"),
        ("ERROR", "the disk is broken"),
        ("WARNING", "it works again"),
        ("ERROR", "the disk is full"),
    ]


def test_level_and_traceback_can_be_chosen(caplog):
    error = ValueError("100%s")
    Outage(log).begin("a mistake of ours: 100%s", level=logging.CRITICAL, error=error)
    assert logged(caplog) == [("CRITICAL", "a mistake of ours: 100%s")]
    assert caplog.records[0].exc_info[1] is error
