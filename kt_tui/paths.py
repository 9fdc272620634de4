"""Where the files that a user owns live (design: config, data, state and cache folders)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

APP_NAME = "kt-tui"


@dataclass(frozen=True)
class Paths:
    """The four folders of a user; none of them need exist yet."""

    config: Path
    data: Path
    state: Path
    cache: Path

    @property
    def config_file(self) -> Path:
        """The user's ``config.toml``."""
        return self.config / "config.toml"

    @property
    def profiles(self) -> Path:
        """One ``NAME.toml`` a profile."""
        return self.config / "profiles"

    @property
    def models_file(self) -> Path:
        """The user's own entries of the model catalogue."""
        return self.config / "models.toml"

    @property
    def chats(self) -> Path:
        """The conversations' database."""
        return self.data / "chats.sqlite3"

    @property
    def logs(self) -> Path:
        """Engine logs, one file a launch."""
        return self.state / "logs"

    @property
    def engines(self) -> Path:
        """State files of running engines."""
        return self.state / "engines"

    @property
    def models(self) -> Path:
        """Checkpoints that kt-tui makes or downloads itself."""
        return self.cache / "models"


def user_paths(environ: Mapping[str, str]) -> Paths:
    """The folders for this user: ``$KT_TUI_HOME/{config,data,state,cache}``, or the platform's own.

    A relative ``XDG_*`` value is invalid by the XDG specification and is ignored by platformdirs' rule that
    an empty one means unset; a relative ``KT_TUI_HOME`` counts from the current folder.
    """
    if home := environ.get("KT_TUI_HOME"):
        root = Path(home).expanduser().absolute()
        return Paths(root / "config", root / "data", root / "state", root / "cache")
    from platformdirs import PlatformDirs

    dirs = PlatformDirs(APP_NAME, appauthor=False)
    return Paths(
        Path(dirs.user_config_dir),
        Path(dirs.user_data_dir),
        Path(dirs.user_state_dir),
        Path(dirs.user_cache_dir),
    )


def path_notes(environ: Mapping[str, str]) -> list[str]:
    """Variables that name a folder and are not followed, one sentence each."""
    if environ.get("KT_TUI_HOME"):
        return []
    names = ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME")
    return [
        f"the variable {name} is not used: {value!r} is no absolute path, as the XDG specification asks for"
        for name in names
        if (value := environ.get(name, "")).strip() and not Path(value).is_absolute()
    ]


def shipped(name: str) -> Path:
    """A file or folder shipped with kt-tui (``themes``, ``config.toml``).

    In a wheel it lies in ``kt_tui/data``; in a source checkout at the top of the repository.
    """
    package = Path(__file__).parent
    installed = package / "data" / name
    return installed if installed.exists() else package.parent / name
