"""Control groups: version 1, 2, hybrid, nested, in containers."""

import pytest

from kt_tui.hardware.cgroup import parse_cpu_max, parse_membership, parse_mounts


def test_membership_names_each_controller() -> None:
    found = parse_membership(
        "12:cpu,cpuacct:/docker/a\n1:name=systemd:/x\n0::/user.slice/a:b (deleted)\njunk\n3:pids\n"
    )
    assert found == {"cpu": "/docker/a", "cpuacct": "/docker/a", "name=systemd": "/x", "": "/user.slice/a:b"}


def test_the_usual_mount_wins_over_a_second_one() -> None:
    text = (
        "1 0 0:2 / /host/sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
        "2 0 0:2 /me /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
        "3 0 0:2 / /mnt rw - cgroup2 cgroup2 rw\n"
    )
    assert parse_mounts(text) == {"": ("/me", "/sys/fs/cgroup")}


@pytest.mark.parametrize(
    ("text", "cpus"),
    [
        ("1600000 100000", 16.0),
        ("50000 100000\n", 0.5),
        ("250000", 2.5),
        ("max 100000", None),
        ("0 100000", None),
        ("100000 0", None),
        ("-1 100000", None),
        ("", None),
        (None, None),
        ("many few", None),
    ],
)
def test_cpu_max_is_read(text: str | None, cpus: float | None) -> None:
    assert parse_cpu_max(text) == cpus
