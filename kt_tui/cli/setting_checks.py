"""What a setting must fulfil beyond its type when it is set: things that only higher rows of the house know."""

from __future__ import annotations

import difflib
import json
from pathlib import Path

from kt_tui.errors import UsageError
from kt_tui.launch.configured import check_option
from kt_tui.paths import Paths, shipped
from kt_tui.settings import BY_NAME, LAUNCH, known_key, parse_text


def checked(key: str, text: str, paths: Paths) -> str:
    """The text to set, with folders made absolute.

    Raises:
        UsageError: There is no such theme, folder or launch option, or the launch option cannot have that value.
    """
    if key.startswith(LAUNCH):
        known_key(key)
        check_option(key.removeprefix(LAUNCH), text)
    elif key == "ui.theme":
        _check_theme(text, paths)
    elif key == "paths.models":
        return _absolute(text)
    return text


def _check_theme(name: str, paths: Paths) -> None:
    from kt_tui.ui.theming import usable_themes

    found = usable_themes([shipped("themes"), paths.config / "themes"])
    names = [theme.name for theme in found.themes]
    if name not in names:
        near = difflib.get_close_matches(name, names, n=1)
        hint = f"; did you mean {near[0]}?" if near else f"; there are {', '.join(names)}"
        broken = "".join(f" ({problem})" for problem in found.problems if f"{name}.toml" in problem)
        raise UsageError(f"there is no theme {name!r}{broken}{hint}")


def _absolute(text: str) -> str:
    folders = parse_text(BY_NAME["paths.models"], text)
    assert isinstance(folders, list)  # noqa: S101 (what parse_text promises for this kind)
    shown = []
    for folder in folders:
        path = Path(folder).expanduser()
        if not path.exists():
            raise UsageError(f"there is no folder {folder}; make it first, or mount the disk that has it")
        if not path.is_dir():
            raise UsageError(f"{folder} is no folder; name the folder that holds the checkpoints")
        # A path counts from where it was typed; ~ stays, so that the file works on another account.
        shown.append(folder if folder.startswith("~") else str(path.absolute()))
    return json.dumps(shown, ensure_ascii=False)
