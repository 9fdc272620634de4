"""One value a parameter, from the first source that has one, with its origin."""

from typing import Any

import pytest

from kt_tui.launch.resolve import Origin, Resolved, Sources, resolve
from kt_tui.launch.schema import BY_NAME

PORT, THREADS = BY_NAME["port"], BY_NAME["cpu-threads"]


class File:
    """config.toml."""

    def __init__(self, values: dict[str, object], origin: str = "config") -> None:
        self.values, self.from_where = values, origin

    def get(self, key: str) -> object:
        return self.values[key]

    def origin(self, key: str) -> str:
        return self.from_where if key in self.values else "default"


def all_sources() -> dict[str, Any]:
    return {
        "cli": {"port": 1001},
        "profile": {"port": 1002},
        "environ": {"KT_TUI_PORT": "1003"},
        "settings": File({"server.port": 1004}),
        "model": {"port": 1005},
        "hardware": {"port": 1006},
    }


def test_sources_count_in_their_order() -> None:
    sources = all_sources()
    seen = []
    for name in list(sources):
        values, problems = resolve([PORT], Sources(**sources))
        assert problems == {}
        seen.append((values["port"].value, values["port"].origin))
        del sources[name]
    seen.append((resolve([PORT], Sources())[0]["port"].value, resolve([PORT], Sources())[0]["port"].origin))
    assert seen == [
        (1001, Origin.CLI),
        (1002, Origin.PROFILE),
        (1003, Origin.ENVIRONMENT),
        (1004, Origin.CONFIG),
        (1005, Origin.MODEL),
        (1006, Origin.HARDWARE),
        (30000, Origin.DEFAULT),
    ]


def test_a_value_that_the_configuration_took_from_elsewhere_is_not_its_own() -> None:
    settings = File({"server.port": 4444}, origin="default")
    values, _ = resolve([PORT], Sources(settings=settings))
    assert values["port"] == Resolved(30000, Origin.DEFAULT)


def test_every_option_has_a_key_in_the_configuration() -> None:
    values, _ = resolve([THREADS], Sources(settings=File({"launch.cpu-threads": "12"})))
    assert values["cpu-threads"] == Resolved(12, Origin.CONFIG)


def test_a_bad_value_is_told_and_replaced_by_nothing_else() -> None:
    values, problems = resolve([PORT], Sources(environ={"KT_TUI_PORT": "many"}, model={"port": 5}))
    assert values["port"] == Resolved(None, Origin.ENVIRONMENT)
    assert problems["port"] == "KT_TUI_PORT needs a whole number, not 'many'"


@pytest.mark.parametrize(
    ("name", "raw", "value"),
    [("port", "8_080", 8080), ("port", " 80 ", 80), ("host", "::1", "::1"), ("device", "cpu", "cpu")],
)
def test_values_are_read_from_text(name: str, raw: object, value: object) -> None:
    assert BY_NAME[name].read(raw) == value


@pytest.mark.parametrize(
    ("name", "raw"),
    [
        ("port", True),
        ("port", 1.5),
        ("port", "1e3"),
        ("port", None),
        ("port", "٣"),
        ("port", 1 << 80),
        ("host", ""),
        ("host", "a\nb"),
        ("host", 7),
        ("device", "tpu"),
        ("api-key", "with space"),
        ("api-key", "ключ"),
    ],
)
def test_what_is_no_value_is_refused(name: str, raw: object) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 (messages differ)
        BY_NAME[name].read(raw)
    if name == "api-key":
        assert str(raw) not in str(caught.value), "a secret must not be quoted"
