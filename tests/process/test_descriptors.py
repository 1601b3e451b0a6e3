"""The limit of open files is raised, and their number is reported."""

import gc
import os
import resource
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.inprocess import write_config
from support.running import start_gateway
from tollgate.process import descriptors

LIMITS = """
import resource
from tollgate.process import descriptors
soft, hard = {soft}, {hard}
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
descriptors.raise_limit()
print(*resource.getrlimit(resource.RLIMIT_NOFILE))
"""


@pytest.mark.parametrize(
    ("soft", "hard", "after"),
    [(64, 200, "200 200"), (200, 200, "200 200"), (200, 300, "300 300")],
    ids=["raised", "already at the hard limit", "raised a little"],
)
def test_the_limit_is_raised_to_the_hard_limit(soft: int, hard: int, after: str) -> None:
    where = {**os.environ, "PYTHONPATH": str(Path(descriptors.__file__).parents[2])}
    code = LIMITS.format(soft=soft, hard=hard)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=where)
    assert done.stdout.strip() == after


@pytest.fixture
def scarce() -> Iterator[int]:
    """A limit that is nearly reached. Collects garbage first, so that files of other tests are not closed during this
    one."""
    gc.collect()
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    few = max(int(name) for name in os.listdir("/proc/self/fd")) + 10
    resource.setrlimit(resource.RLIMIT_NOFILE, (few, before[1]))
    yield few
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="no /proc")
def test_open_files_are_counted_even_if_none_can_be_opened(scarce: int) -> None:
    before = descriptors.in_use()
    assert before is not None and 0 < before[0] < scarce and before[1] == scarce
    taken: list[int] = []
    try:
        with pytest.raises(OSError, match="Too many open files"):
            while True:
                taken.append(os.open(os.devnull, os.O_RDONLY))
                if len(taken) == 1:
                    assert descriptors.in_use() == (before[0] + 1, scarce)
        assert descriptors.in_use() == (scarce, scarce)
    finally:
        for each in taken:
            os.close(each)


def test_a_gateway_raises_a_low_limit_of_open_files(tmp_path: Path) -> None:
    write_config(tmp_path)
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (128, before[1]))  # as inherited from a shell or a service
    try:
        running = start_gateway(tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    with urllib.request.urlopen(running.base + "/metrics") as reply:
        text = reply.read().decode()
    assert running.stop() == 0
    assert f"\nprocess_max_fds {float(min(before[1], 65_536))}\n" in text
