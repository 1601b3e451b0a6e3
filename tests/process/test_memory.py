"""How much memory this process may use."""

import os
from pathlib import Path

import pytest

from support.files import write_file
from support.inprocess import inprocess
from tollgate.process import memory

MACHINE = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def groups(folder: Path, own: str, limits: dict[str, str]) -> int:
    """The allowed memory if control groups have these limits and the process is in `own`."""
    for name, limit in limits.items():
        write_file(folder / name, limit + "\n")
    (folder / "own").write_text(own)
    return memory.allowed(folder, folder / "own")


def test_without_limits_the_machine_s_memory_is_allowed(tmp_path):
    assert memory.allowed(tmp_path, tmp_path / "none") == MACHINE
    assert groups(tmp_path, "0::/\n", {"memory.max": "max"}) == MACHINE


def test_the_lowest_limit_of_all_parent_groups_applies(tmp_path):
    limits = {"a/memory.max": "5000", "a/b/memory.max": "max", "a/b/c/memory.max": "7000", "other/memory.max": "1"}
    assert groups(tmp_path, "0::/a/b/c\n", limits) == 5000


def test_a_container_sees_its_own_group_as_the_root(tmp_path):
    assert groups(tmp_path, "0::/\n", {"memory.max": "6000"}) == 6000


def test_control_groups_v1_have_a_memory_controller(tmp_path):
    own = "9:cpu,cpuacct:/x\n4:memory:/x/y\n1:name=systemd:/z\n"
    assert groups(tmp_path, own, {"memory/x/memory.limit_in_bytes": "8000"}) == 8000
    assert groups(tmp_path, own, {"memory/memory.limit_in_bytes": "9223372036854771712"}) == 8000


MIB = 1024**2
LITTLE = (
    "200 MiB of memory may not be enough: up to 32 MiB of request bodies are held at once, and processing them can "
    "take 320 MiB; lower server.max_body_bytes to 12 MiB, or provide more memory"
)


@pytest.mark.parametrize(
    ("allowed", "settings", "held", "message"),
    [
        (8192, "", 1024, ""),
        (512, "", 64, ""),
        (384, "", 42, ""),
        (200, "", 32, LITTLE),
        (100, "", 32, "lower server.max_body_bytes, or provide more memory"),
        (200, "server: {max_body_bytes: 8388608}\n", 12, ""),
        (4096, "server: {max_bodies_bytes: 1073741824}\n", 1024, "lower server.max_bodies_bytes to 512 MiB"),
    ],
)
async def test_a_start_warns_if_memory_is_too_small_for_the_bodies(
    tmp_path, monkeypatch, caplog, allowed, settings, held, message
):
    monkeypatch.setattr(memory, "allowed", lambda: allowed * MIB)
    async with inprocess(tmp_path, settings=settings) as app:
        assert app.services.room.most // MIB == held
    warnings = [record.getMessage() for record in caplog.records if "memory" in record.getMessage()]
    assert len(warnings) == bool(message) and all(message in line for line in warnings)
