"""Themes: shipped ones are sound, bad ones are named and left out, switching is live and kept."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from textual.color import Color

from kt_tui.config import load_config, set_value
from kt_tui.paths import Paths, shipped
from kt_tui.ui.app import KtApp
from kt_tui.ui.theming import ThemeError, load_themes, parse_theme, variable_defaults
from tests.ui.panel_helpers import PanelServices, settled, wait_until

GOOD = {"name": "mine", "primary": "#112233"}


def test_the_shipped_themes_are_sound_and_set_the_same_variables() -> None:
    found = load_themes([shipped("themes")])
    assert found.problems == ()
    by_name = {theme.name: theme for theme in found.themes}
    assert {"kt-dark", "kt-light", "terminal", "mono"} <= set(by_name)
    own = set(variable_defaults(by_name["kt-dark"]))
    for theme in found.themes:
        assert own <= set(theme.variables), f"{theme.name} lacks {own - set(theme.variables)}"
    assert not by_name["kt-light"].dark
    assert by_name["terminal"].ansi


@pytest.mark.parametrize("name", ["kt-dark", "kt-light", "mono"])
def test_text_is_readable_on_every_background_of_a_theme(name: str) -> None:
    theme = next(t for t in load_themes([shipped("themes")]).themes if t.name == name)
    assert theme.background is not None
    assert theme.surface is not None
    for background in (theme.background, theme.surface):
        for colour, least in (
            (theme.foreground, 7.0),
            (theme.variables["muted"], 3.5),
            (theme.variables["ok"], 3.0),
        ):
            assert colour is not None
            assert contrast(Color.parse(colour), Color.parse(background)) >= least


def contrast(one: Color, other: Color) -> float:
    """WCAG 2.1 contrast ratio, 1 to 21."""

    def luminance(colour: Color) -> float:
        parts = [c / 255 for c in colour.rgb]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"primary": "#12"}, "primary"),
        ({"primary": 5}, "primary"),
        ({"name": None}, "name"),
        ({"background": "chartroose"}, "chartroose"),
        ({"colour": "#fff"}, "colour"),
        ({"dark": "yes"}, "dark"),
        ({"text_alpha": True}, "text_alpha"),
        ({"variables": {"ok": "greenish"}}, "variables.ok"),
        ({"variables": {"ok": 3}}, "variables.ok"),
        ({"variables": []}, "variables"),
        ({"primary": "#fff 300"}, "primary"),
    ],
)
def test_a_bad_theme_is_refused_with_its_key(changes: dict[str, object], word: str) -> None:
    with pytest.raises(ThemeError, match=word):
        parse_theme({**GOOD, **changes})


def test_unreadable_files_become_problems_and_later_folders_win(tmp_path: Path) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    first.mkdir()
    second.mkdir()
    (first / "one.toml").write_text('name = "one"\nprimary = "#111111"\n')
    (second / "one.toml").write_text('name = "one"\nprimary = "#222222"\n')
    (second / "broken.toml").write_text("name = \n")
    (second / "latin.toml").write_bytes(b'name = "\xe9"\n')
    found = load_themes([first, second, tmp_path / "missing"])
    assert [theme.primary for theme in found.themes] == ["#222222"]
    assert len(found.problems) == 2
    assert any("broken.toml" in problem for problem in found.problems)


async def test_every_theme_is_shown_live_and_the_choice_is_kept(
    services: PanelServices, kt_paths: Paths
) -> None:
    app = KtApp(services)
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        for name in app.theme_names:
            await app.action_use_theme(name).wait()
            await pilot.pause()
            assert app.theme == name
            assert app.is_running
        await app.action_use_theme("kt-light").wait()
        await wait_until(pilot, lambda: app.screen.styles.background == Color.parse("#f7f6f2"))
    assert load_config(kt_paths, {}).get("ui.theme") == "kt-light"
    assert tomllib.loads(kt_paths.config_file.read_text())["ui"]["theme"] == "kt-light"


async def test_a_bad_theme_of_the_user_is_said_and_does_not_stop_the_panel(
    services: PanelServices, kt_paths: Paths
) -> None:
    folder = kt_paths.config / "themes"
    folder.mkdir(parents=True)
    (folder / "bad.toml").write_text('name = "bad"\nprimary = "nocolour"\n')
    (folder / "mine.toml").write_text('name = "mine"\nprimary = "#abcdef"\n')
    app = KtApp(services)
    async with app.run_test(size=(120, 40)) as pilot:
        await settled(pilot)
        assert any("bad.toml" in alert for alert in app.alerts)
        assert "mine" in app.theme_names
        assert "bad" not in app.theme_names


async def test_an_unknown_theme_in_the_settings_falls_back(services: PanelServices, kt_paths: Paths) -> None:
    services.config = load_config(kt_paths, {"KT_TUI_THEME": "nosuch"})
    app = KtApp(services)
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        assert app.theme == "kt-dark"
        assert any("nosuch" in alert for alert in app.alerts)


async def test_keys_of_the_settings_remap_bindings(
    services: PanelServices, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dataclasses import replace

    from kt_tui.config import Setting

    settings = {**services.config.settings, "keys.app.jump": Setting("f9", "config")}
    services.config = replace(services.config, settings=settings)
    app = KtApp(services)
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        await pilot.press("f9")
        from kt_tui.ui.screens.jump import JumpScreen

        await wait_until(pilot, lambda: isinstance(app.screen, JumpScreen))


async def test_a_theme_that_cannot_be_saved_is_used_and_marked_until_it_can(
    services: PanelServices, kt_paths: Paths
) -> None:
    set_value(kt_paths, "server.port", "31000")
    kt_paths.config_file.chmod(0o444)
    app = KtApp(services)
    async with app.run_test(size=(120, 40)) as pilot:
        await settled(pilot)
        app.action_use_theme("kt-light")
        await wait_until(pilot, lambda: app.not_saved)
        assert app.theme == "kt-light"
        assert any("not saved" in alert and "is read-only" in alert for alert in app.alerts)
        kt_paths.config_file.chmod(0o644)
        app.action_use_theme("kt-light")
        await wait_until(pilot, lambda: not app.not_saved)
        assert not any("not saved" in alert for alert in app.alerts)
