"""What the kt command line keeps is taken over, and what is not is told."""

from __future__ import annotations

import hashlib
import tomllib
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kt_tui.catalog.known import known_models
from kt_tui.errors import KtError
from kt_tui.kt_import import read_kt, take_over
from kt_tui.kt_import.yaml_file import YamlError, read_yaml
from kt_tui.paths import Paths
from kt_tui.profiles import Profile, list_profiles, load_profile, save_profile

# As kt writes them: safe_dump without sorting for the models, sorted for the runs.
USER_MODELS = """\
version: '1.0'
models:
- name: MiniMax-M2.1
  path: /data/models/MiniMax-M2.1
  format: safetensors
  id: 11111111-aaaa
  repo_type: huggingface
  repo_id: MiniMaxAI/MiniMax-M2.1
  sha256_status: passed
  gpu_model_ids: null
  created_at: '2026-01-02T03:04:05.678901'
  last_verified: '2026-01-03T00:00:00'
  is_moe: true
  moe_num_experts: 256
- name: my/own
  path: /data/models/own
  format: gguf
  id: 22222222-bbbb
  repo_type: null
  repo_id: null
  sha256_status: not_checked
  gpu_model_ids:
  - 11111111-aaaa
  created_at: '2026-01-02T03:04:05.678901'
  last_verified: null
  colour: red
"""
RUN_CONFIGS = """\
configs:
  11111111-aaaa:
  - chunk_prefill: 32768
    config_name: Config raw
    cpu_threads: 64
    created_at: '2026-02-03T04:05:06.789'
    gpu_experts: true
    gpu_prefill_threshold: 500
    host: 0.0.0.0
    inference_method: raw
    kt_method: FP8
    kv_cache: 32768
    mem_fraction_static: 0.9
    model_path: /data/models/MiniMax-M2.1
    numa_nodes: 2
    port: 30000
    raw_method: FP8
    tool_call_parser: minimax-m2
    tp_size: 2
    weights_path: /data/models/MiniMax-M2.1
  - config_name: Config raw
    cpu_threads: 32
    model_path: /data/models/MiniMax-M2.1
    weights_path: /data/amx
    watchdog: 3
  99999999-gone:
  - config_name: ../../etc/passwd
    cpu_threads: lots
    model_path: /data/gone
version: '1.0'
"""
REGISTRY = """\
models:
  Qwen-Own:
    hf_repo: Qwen/Own
    aliases: [qo, m2.1]
    type: moe
    gpu_vram_gb: 24
    cpu_ram_gb: 0
    default_params:
      kt-num-gpu-experts: 1
      kt-method: BF16
      attention-backend: triton
      disable-shared-experts-fusion: true
      odd: [1]
    description: mine
    description_zh: null
    max_tensor_parallel_size: 4
"""


@pytest.fixture
def kt_folder(tmp_path: Path) -> Path:
    folder = tmp_path / ".ktransformers"
    folder.mkdir()
    (folder / "user_models.yaml").write_text(USER_MODELS)
    (folder / "run_configs.yaml").write_text(RUN_CONFIGS)
    (folder / "registry.yaml").write_text(REGISTRY)
    (folder / "config.yaml").write_text("general: {}\n")
    return folder


def never(_sentence: str) -> bool:
    return False


def always(_sentence: str) -> bool:
    return True


def test_models_become_entries_of_the_catalogue(kt_folder: Path, kt_paths: Paths) -> None:
    outcome = take_over(read_kt(kt_folder, kt_paths), kt_paths, never)
    assert outcome.saved_models == ("MiniMax-M2.1-kt", "my-own", "Qwen-Own")
    models = tomllib.loads(kt_paths.models_file.read_text())["models"]
    assert models["my-own"] == {"path": "/data/models/own"}
    known, notes = known_models(kt_paths)
    assert notes == []
    by_name = {model.name: model for model in known}
    # The shipped entry stays, and the user's copy of that model starts with the same defaults.
    shipped, own = by_name["MiniMax-M2.1"], by_name["MiniMax-M2.1-kt"]
    assert own.path == Path("/data/models/MiniMax-M2.1")
    assert own.repo == shipped.repo == "MiniMaxAI/MiniMax-M2.1"
    assert dict(own.defaults) == dict(shipped.defaults)
    assert own.limits == {"tensor-parallel-size": 4}
    registered = by_name["Qwen-Own"]
    assert (registered.repo, registered.aliases, registered.description) == ("Qwen/Own", ("qo",), "mine")
    assert registered.defaults == {
        "gpu-experts": 1,
        "kt-method": "BF16",
        "attention-backend": "triton",
        "disable-shared-experts-fusion": True,
    }
    assert registered.limits == {"tensor-parallel-size": 4}


def test_saved_runs_become_profiles(kt_folder: Path, kt_paths: Paths) -> None:
    outcome = take_over(read_kt(kt_folder, kt_paths), kt_paths, never)
    assert outcome.saved_profiles == ("MiniMax-M2.1-kt-raw", "MiniMax-M2.1-kt-raw-2", "etc-passwd")
    first = load_profile(kt_paths, "MiniMax-M2.1-kt-raw")
    assert (first.model, first.engine) == ("MiniMax-M2.1-kt", "sglang")
    assert dict(first.options) == {
        "kt-method": "FP8",
        "cpu-threads": 64,
        "numa-nodes": 2,
        "gpu-experts": 1,
        "tensor-parallel-size": 2,
        "mem-fraction-static": 0.9,
        "max-total-tokens": 32768,
        "chunked-prefill-size": 32768,
        "kt-gpu-prefill-threshold": 500,
        "tool-call-parser": "minimax-m2",
        "host": "0.0.0.0",  # noqa: S104
        "port": 30000,
    }
    assert first.created == datetime(2026, 2, 3, 4, 5, 6, tzinfo=UTC)
    assert first.note == "from the kt command line, raw"
    second = load_profile(kt_paths, "MiniMax-M2.1-kt-raw-2")
    assert dict(second.options) == {"cpu-threads": 32, "weights-path": "/data/amx"}
    assert load_profile(kt_paths, "etc-passwd").model == "/data/gone"
    assert not (kt_paths.config / "etc").exists()


def test_all_that_has_no_meaning_here_is_told(kt_folder: Path, kt_paths: Paths) -> None:
    notes = read_kt(kt_folder, kt_paths).notes
    for words in (
        'user_models.yaml, "MiniMax-M2.1": that its checksums passed was left out',
        "MiniMax-M2.1\": it is called MiniMax-M2.1-kt here, since MiniMax-M2.1 is another model's name",
        'user_models.yaml, "my/own": these are CPU weights for another model',
        'user_models.yaml, "my/own": colour has no meaning here, and was left out',
        'registry.yaml, "Qwen-Own": its memory needs were left out',
        'registry.yaml, "Qwen-Own": default odd is no text, number, true or false, and was left out',
        'registry.yaml, "Qwen-Own": alias m2.1 leads to another model already, and was left out',
        'run_configs.yaml, "Config raw": gpu_experts is true, which kt makes of 1; 1 is taken',
        'run_configs.yaml, "Config raw": it listens on all addresses (0.0.0.0)',
        'run_configs.yaml, "Config raw": it is called MiniMax-M2.1-kt-raw-2 here',
        'run_configs.yaml, "Config raw": watchdog has no meaning here, and was left out',
        'run_configs.yaml, "../../etc/passwd": cpu_threads is no whole number, and was left out',
        'run_configs.yaml, "../../etc/passwd": its model is not in user_models.yaml; the path /data/gone is taken',
        "config.yaml: kt's settings were not taken over",
    ):
        assert any(note.find(words) >= 0 for note in notes), (words, notes)
    assert not any("last_verified" in note or "created_at" in note for note in notes)


def test_reading_changes_nothing(kt_folder: Path, kt_paths: Paths) -> None:
    before = {path: hashlib.sha256(path.read_bytes()).digest() for path in kt_folder.iterdir()}
    read_kt(kt_folder, kt_paths)
    assert not kt_paths.config.exists()
    take_over(read_kt(kt_folder, kt_paths), kt_paths, always)
    assert before == {path: hashlib.sha256(path.read_bytes()).digest() for path in kt_folder.iterdir()}


def test_a_second_import_changes_nothing(kt_folder: Path, kt_paths: Paths) -> None:
    take_over(read_kt(kt_folder, kt_paths), kt_paths, never)
    files = {path: path.read_bytes() for path in kt_paths.config.rglob("*.toml")}
    outcome = take_over(read_kt(kt_folder, kt_paths), kt_paths, never)
    assert outcome == type(outcome)()
    assert files == {path: path.read_bytes() for path in kt_paths.config.rglob("*.toml")}


def test_what_is_there_already_is_replaced_only_when_allowed(kt_folder: Path, kt_paths: Paths) -> None:
    kt_paths.config.mkdir(parents=True)
    kt_paths.models_file.write_text('# mine\n[models.my-own]\npath = "/elsewhere" # kept?\nlicence = "MIT"\n')
    save_profile(kt_paths, Profile("MiniMax-M2.1-kt-raw", "demo", options={"port": 1}))
    asked: list[str] = []
    outcome = take_over(read_kt(kt_folder, kt_paths), kt_paths, lambda text: bool(asked.append(text)))
    assert asked == [
        f"There is a model my-own in {kt_paths.models_file} already",
        "There is a profile MiniMax-M2.1-kt-raw already",
    ]
    assert (outcome.kept_models, outcome.kept_profiles) == (("my-own",), ("MiniMax-M2.1-kt-raw",))
    assert load_profile(kt_paths, "MiniMax-M2.1-kt-raw").model == "demo"
    outcome = take_over(read_kt(kt_folder, kt_paths), kt_paths, always)
    assert (outcome.saved_models, outcome.saved_profiles) == (("my-own",), ("MiniMax-M2.1-kt-raw",))
    text = kt_paths.models_file.read_text()
    assert text.startswith('# mine\n[models.my-own]\npath = "/data/models/own" # kept?\nlicence = "MIT"\n')
    assert load_profile(kt_paths, "MiniMax-M2.1-kt-raw").model == "MiniMax-M2.1-kt"


def test_a_folder_without_such_files_is_a_sentence(tmp_path: Path, kt_paths: Paths) -> None:
    with pytest.raises(
        KtError, match=f"there is none of user_models.yaml, .* in {tmp_path}; name the folder"
    ):
        read_kt(tmp_path, kt_paths)


def bomb() -> str:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 10)]
    return "\n".join(lines)


def merge_bomb() -> str:
    lines = ["a0: &a0 {k: v}"]
    lines += [f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 10)}]}}" for n in range(1, 10)]
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("models: [\n", ":2:1: "),
        ("models:\n\t- x\n", ":2:1: "),
        ("- a\n- b\n", "this is no mapping"),
        ("just words\n", "this is no mapping"),
        ("a: &a [*a]\n", "holds far more than such files do, or itself"),
        ("x: " + "[" * 400 + "]" * 400, "holds far more than such files do"),
        ("x: " + "[" * 60_000, "nested too deeply"),
        (bomb(), "holds far more than such files do"),
        ("a: !!python/object/apply:os.system ['touch /tmp/x']\n", "could not determine a constructor"),
        ("a: !!python/name:os.system\n", "could not determine a constructor"),
        ("? [a]\n: b\n", "found unhashable key"),
        ("a: " + "9" * 5000, "it was not taken over"),
        ("a: *nowhere\n", "undefined alias"),
        ("a: \x00b\n", "it was not taken over"),
        ("a: b\n" * 300_000, "too long"),
        ("%YAML 9.9\n---\na: b\n", "incompatible YAML document"),
    ],
)
def test_hostile_yaml_is_a_sentence(text: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "user_models.yaml"
    path.write_text(text)
    with pytest.raises(YamlError, match="was not taken over") as caught:
        read_yaml(path)
    assert words in str(caught.value)
    assert str(path) in str(caught.value)
    assert len(str(caught.value)) < 500


def test_merges_are_no_merges(tmp_path: Path) -> None:
    path = tmp_path / "user_models.yaml"
    path.write_text("base: &b {k: v}\nuse: {<<: *b}\nwhen: 2026-01-02\n")
    assert read_yaml(path) == {"base": {"k": "v"}, "use": {"<<": {"k": "v"}}, "when": "2026-01-02"}
    path.write_text(merge_bomb())
    with pytest.raises(YamlError, match="holds far more"):
        read_yaml(path)


def test_an_empty_file_is_nothing(tmp_path: Path) -> None:
    path = tmp_path / "user_models.yaml"
    for text in ("", "# only a comment\n", "null\n", "---\n"):
        path.write_text(text)
        assert read_yaml(path) is None
    assert read_yaml(tmp_path / "gone.yaml") is None


def test_one_broken_file_does_not_hold_up_the_others(kt_folder: Path, kt_paths: Paths) -> None:
    (kt_folder / "user_models.yaml").write_text("models: [\n")
    found = read_kt(kt_folder, kt_paths)
    assert found.unreadable
    assert str(kt_folder / "user_models.yaml") in found.notes[0]
    assert [model.name for model in found.models] == ["Qwen-Own"]
    assert [profile.model for profile in found.profiles] == [
        "/data/models/MiniMax-M2.1",
        "/data/models/MiniMax-M2.1",
        "/data/gone",
    ]


anything: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


def likely(keys: list[str]) -> st.SearchStrategy[dict[str, Any]]:
    return st.dictionaries(st.sampled_from(keys), anything, max_size=8)


MODEL_KEYS = [
    "name",
    "path",
    "id",
    "repo_id",
    "repo_type",
    "sha256_status",
    "gpu_model_ids",
    "amx_source_model",
    "x",
]
RUN_KEYS = ["config_name", "kt_method", "model_path", "weights_path", "numa_nodes", "cpu_threads", "gpu_experts",
            "mem_fraction_static", "host", "port", "raw_method", "inference_method", "created_at", "x"]  # fmt: skip
REGISTRY_KEYS = [
    "hf_repo",
    "aliases",
    "default_params",
    "description",
    "gpu_vram_gb",
    "max_tensor_parallel_size",
]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    models=anything | st.lists(likely(MODEL_KEYS) | anything, max_size=3),
    runs=anything
    | st.dictionaries(st.text(max_size=5), st.lists(likely(RUN_KEYS) | anything, max_size=2), max_size=2),
    registry=anything | st.dictionaries(st.text(max_size=5), likely(REGISTRY_KEYS) | anything, max_size=2),
)
def test_whatever_the_files_hold_it_is_taken_over_or_told(
    tmp_path: Path, kt_paths: Paths, models: Any, runs: Any, registry: Any
) -> None:
    import yaml

    (tmp_path / "user_models.yaml").write_text(yaml.safe_dump({"models": models}))
    (tmp_path / "run_configs.yaml").write_text(yaml.safe_dump({"configs": runs}))
    (tmp_path / "registry.yaml").write_text(yaml.safe_dump({"models": registry}))
    kt_paths.models_file.unlink(missing_ok=True)
    found = read_kt(tmp_path, kt_paths)
    outcome = take_over(found, kt_paths, always)
    assert all(note.isprintable() or "\n" not in note for note in found.notes)
    assert known_models(kt_paths)[1] == []
    listed = list_profiles(kt_paths)
    assert {*outcome.saved_profiles} <= {profile.name for profile in listed.profiles}
    assert listed.notes == ()
