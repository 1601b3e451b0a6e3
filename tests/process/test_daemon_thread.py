"""Work in threads that the end of the process does not wait for."""

import contextlib
import gc
import subprocess
import sys
import threading
import weakref

import pytest

from support.running import environment
from tollgate.process.concurrency import in_daemon_thread


def test_a_result_is_set_on_the_future():
    assert in_daemon_thread(lambda: threading.current_thread().name, "some work").result(5) == "some work"


@pytest.mark.parametrize(("work", "error"), [(sys.exit, SystemExit), (lambda: 1 // 0, ZeroDivisionError)])
def test_an_error_is_set_on_the_future(work, error):
    with pytest.raises(error):
        in_daemon_thread(work, "some work").result(5)


def test_objects_of_failed_work_are_freed_without_the_garbage_collector():
    made = []

    def work():
        large = threading.Event()
        made.append((weakref.ref(large), threading.current_thread()))
        raise ValueError

    gc.disable()
    try:
        with contextlib.suppress(ValueError):
            in_daemon_thread(work, "some work").result(5)
        [(large, thread)] = made
        thread.join(5)
        assert large() is None
    finally:
        gc.enable()


def test_the_end_of_a_process_does_not_wait_for_hanging_work():
    script = (
        "import threading; from tollgate.process.concurrency import in_daemon_thread; "
        "in_daemon_thread(threading.Event().wait, 'hanging')"
    )
    assert subprocess.run([sys.executable, "-c", script], env=environment(), timeout=60).returncode == 0
