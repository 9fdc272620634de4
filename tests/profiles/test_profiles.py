from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kt_tui.errors import KtError
from kt_tui.paths import Paths
from kt_tui.profiles import (
    Profile,
    ProfileError,
    delete_profile,
    export_text,
    list_profiles,
    load_profile,
    name_problem,
    profile_from_toml,
    save_profile,
)
from kt_tui.secret import masked_arguments
from kt_tui.tomlfile import FileError, TomlError

WHEN = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
FULL = Profile(
    name="fast",
    model="demo",
    engine="embedded",
    options={"cpu-threads": 8, "served-model-name": 'a "b"', "flag": True, "share": 0.5},
    created=WHEN,
    note="evening\nset-up",
    measured={"tokens_per_s": 41.5},
    extra=("--engine-flag", "x y"),
)


def test_what_is_saved_comes_back(kt_paths: Paths) -> None:
    path = save_profile(kt_paths, FULL)
    assert path == kt_paths.profiles / "fast.toml"
    assert load_profile(kt_paths, "fast") == FULL
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_profile_without_a_date_gets_one(kt_paths: Paths) -> None:
    save_profile(kt_paths, Profile("p", "demo"))
    created = load_profile(kt_paths, "p").created
    assert created is not None
    assert abs((datetime.now(UTC) - created).total_seconds()) < 60


scalars = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=30),
    st.integers(-(2**62), 2**62),
    st.booleans(),
    st.floats(allow_nan=False, allow_infinity=False),
)
names = st.from_regex(r"[a-z][a-z0-9-]{0,12}", fullmatch=True)
text = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    first=st.dictionaries(names, scalars, max_size=5),
    second=st.dictionaries(names, scalars, max_size=5),
    note=text,
    extra=st.lists(text, max_size=3),
)
def test_any_profile_survives_saving_and_saving_again(
    kt_paths: Paths, first: dict[str, object], second: dict[str, object], note: str, extra: list[str]
) -> None:
    one = Profile("p", "demo", None, first, WHEN, note, {}, tuple(extra))
    save_profile(kt_paths, one, overwrite=True)
    assert load_profile(kt_paths, "p") == one
    two = Profile("p", "smollm2", "sglang", second, WHEN, "", {"x": 1}, ())
    save_profile(kt_paths, two, overwrite=True)
    assert load_profile(kt_paths, "p") == two


def test_saving_over_a_profile_keeps_the_users_own_lines(kt_paths: Paths) -> None:
    path = save_profile(kt_paths, FULL)
    path.write_text(
        "# mine\n"
        + path.read_text().replace("cpu-threads = 8", "cpu-threads = 8 # tested")
        + "\n[own]\nz = 1\n"
    )
    save_profile(kt_paths, Profile("fast", "demo", options={"cpu-threads": 6}, created=WHEN), overwrite=True)
    text = path.read_text()
    assert text.startswith("# mine\n")
    assert "cpu-threads = 6 # tested\n" in text
    assert text.endswith("\n[own]\nz = 1\n")
    assert load_profile(kt_paths, "fast") == Profile("fast", "demo", options={"cpu-threads": 6}, created=WHEN)


def test_numbers_truth_and_fractions_are_not_confused(kt_paths: Paths) -> None:
    save_profile(kt_paths, Profile("p", "demo", options={"a": 1, "b": True, "c": 1.0}))
    save_profile(kt_paths, Profile("p", "demo", options={"a": True, "b": 1.0, "c": 1}), overwrite=True)
    assert [repr(v) for v in load_profile(kt_paths, "p").options.values()] == ["True", "1.0", "1"]


def test_a_name_is_taken_once(kt_paths: Paths) -> None:
    save_profile(kt_paths, FULL)
    with pytest.raises(ProfileError, match="there is a profile 'fast' already"):
        save_profile(kt_paths, Profile("fast", "smollm2"))
    assert load_profile(kt_paths, "fast") == FULL


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "..",
        "../x",
        "a/b",
        "/etc/passwd",
        ".hidden",
        "-rf",
        "a b",
        "x.toml",
        "x.TOML",
        "a\n",
        "a\0b",
        "a\\b",
        "é" * 61,
    ],
)
def test_names_that_could_be_paths_are_refused(name: str, kt_paths: Paths) -> None:
    assert name_problem(name) is not None
    for act in (load_profile, delete_profile):
        with pytest.raises(ProfileError, match="profile"):
            act(kt_paths, name)
    with pytest.raises(ProfileError, match="profile"):
        save_profile(kt_paths, Profile(name, "demo"))
    assert not kt_paths.config.exists()


@pytest.mark.parametrize("name", ["a", "fast-2", "m2.1", "über", "快", "a+b", "x" * 120])
def test_names_of_files_are_allowed(name: str, kt_paths: Paths) -> None:
    save_profile(kt_paths, Profile(name, "demo"))
    assert [profile.name for profile in list_profiles(kt_paths).profiles] == [name]


def test_one_name_in_two_spellings_is_one_file(kt_paths: Paths) -> None:
    save_profile(kt_paths, Profile("u\u0308ber", "demo"))
    assert load_profile(kt_paths, "\u00fcber").model == "demo"


def test_near_misses_are_named(kt_paths: Paths) -> None:
    with pytest.raises(ProfileError, match=r"there is no profile 'x'$"):
        load_profile(kt_paths, "x")
    save_profile(kt_paths, FULL)
    with pytest.raises(ProfileError, match="there is no profile 'fsat'; did you mean 'fast'"):
        load_profile(kt_paths, "fsat")
    with pytest.raises(ProfileError, match="there is no profile 'zzz'; there is fast"):
        delete_profile(kt_paths, "zzz")


def test_deleting_removes_the_file(kt_paths: Paths) -> None:
    path = save_profile(kt_paths, FULL)
    delete_profile(kt_paths, "fast")
    assert not path.exists()
    assert list_profiles(kt_paths).profiles == ()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("model = ", ":1:9: invalid value"),
        ("engine = 'embedded'", "model is missing"),
        ("model = 5", "model must be a text"),
        ("model = 'm'\nengine = 'vllm'", "engine must be one of embedded, sglang, not 'vllm'"),
        ("model = 'm'\noptions = 1", "options must be a table"),
        ("model = 'm'\noptions = {a = [1]}", "option a must be text, a number, true or false"),
        ("model = 'm'\ncreated = 'today'", "created must be a date and time"),
        ("model = 'm'\nschema_version = 'x'", "schema_version must be a whole number"),
    ],
)
def test_a_broken_file_is_a_note_in_the_list_and_an_error_by_name(
    kt_paths: Paths, text: str, words: str
) -> None:
    save_profile(kt_paths, FULL)
    broken = kt_paths.profiles / "broken.toml"
    broken.write_text(text)
    found = list_profiles(kt_paths)
    assert found.profiles == (FULL,)
    assert len(found.notes) == 1
    assert str(broken) in found.notes[0]
    with pytest.raises(KtError) as caught:
        load_profile(kt_paths, "broken")
    assert words in str(caught.value)
    assert str(broken) in str(caught.value)


def test_a_broken_file_is_not_overwritten(kt_paths: Paths) -> None:
    kt_paths.profiles.mkdir(parents=True)
    path = kt_paths.profiles / "fast.toml"
    path.write_text("model = ")
    with pytest.raises(TomlError):
        save_profile(kt_paths, FULL, overwrite=True)
    assert path.read_text() == "model = "


def test_a_file_of_a_newer_version_is_read_and_never_written(kt_paths: Paths) -> None:
    kt_paths.profiles.mkdir(parents=True)
    path = kt_paths.profiles / "fast.toml"
    path.write_text("schema_version = 99\nmodel = 'm'\nnew = 'thing'\n")
    assert load_profile(kt_paths, "fast").model == "m"
    with pytest.raises(ProfileError, match="newer kt-tui"):
        save_profile(kt_paths, FULL, overwrite=True)
    assert "new = 'thing'" in path.read_text()


@pytest.mark.parametrize("value", [None, [1], {"a": 1}, float("nan"), float("inf"), object()])
def test_values_that_a_file_cannot_keep_are_refused(value: object, kt_paths: Paths) -> None:
    with pytest.raises(ProfileError, match="x cannot be kept"):
        save_profile(kt_paths, Profile("p", "demo", options={"x": value}))
    assert not (kt_paths.profiles / "p.toml").exists()


def test_foreign_files_in_the_folder_are_ignored(kt_paths: Paths) -> None:
    save_profile(kt_paths, FULL)
    for name in (".fast.toml.x.tmp", "notes.txt", "bad name.toml"):
        (kt_paths.profiles / name).write_text("?")
    assert list_profiles(kt_paths).profiles == (FULL,)
    assert list_profiles(kt_paths).notes == ()


def test_secrets_are_never_shown(kt_paths: Paths) -> None:
    secret = Profile(
        "s", "demo", options={"api-key": "hush", "port": 1}, extra=("--hf-token", "hush", "--x", "1")
    )
    path = save_profile(kt_paths, secret)
    path.chmod(0o644)
    save_profile(kt_paths, secret, overwrite=True)
    assert path.stat().st_mode & 0o777 == 0o600
    assert load_profile(kt_paths, "s").options["api-key"] == "hush"
    assert "hush" not in str(secret.to_json())
    assert "hush" not in export_text(secret)
    assert "port" in export_text(secret)


def test_secret_arguments_are_masked_in_both_forms() -> None:
    shown = masked_arguments(["--api-key=a", "--api-key", "b", "--tokens", "5", "--api-key", "--x", "c"])
    assert shown == ["--api-key=(hidden)", "--api-key", "(hidden)", "--tokens", "5", "--api-key", "--x", "c"]


def test_an_export_is_a_profile(kt_paths: Paths) -> None:
    assert profile_from_toml("fast", export_text(FULL), Path("-")) == FULL


def test_a_read_only_folder_is_a_sentence() -> None:
    paths = Paths(*[Path("/proc/kt-tui-test")] * 4)
    assert list_profiles(paths).profiles == ()
    with pytest.raises(FileError, match="cannot save"):
        save_profile(paths, FULL)
