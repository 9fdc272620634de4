"""What all commands have in common: exit codes, and one JSON document whatever happens."""

from __future__ import annotations

import json

import pytest

from kt_tui.cli.main import main, wants_json


@pytest.mark.parametrize(
    "words",
    [
        ["plan", "no-such-model", "--json"],
        ["run", "no-such-model", "--dry-run", "--json"],
        ["models", "show", "no-such-model", "--json"],
        ["profile", "show", "no-such-profile", "--json"],
        ["config", "get", "no.such.key", "--json"],
        ["plan", "demo", "--machine", "/no/such/file", "--json"],
    ],
)
def test_a_refusal_with_json_is_one_document_with_its_sentence(words, kt_home, capsys):
    code = main(words)
    out, err = capsys.readouterr()
    document = json.loads(out)
    assert code in (1, 2)
    assert document["errors"][0]
    assert document["errors"][0] in err


def test_a_refusal_without_json_prints_nothing_on_standard_output(kt_home, capsys):
    assert main(["plan", "no-such-model"]) == 2
    assert capsys.readouterr().out == ""


def test_an_unknown_model_and_an_unknown_profile_exit_alike(kt_home, capsys):
    assert main(["profile", "show", "nope"]) == main(["plan", "nope"]) == 2


def test_the_engines_own_json_option_is_not_ours():
    assert wants_json(["plan", "demo", "--json"])
    assert not wants_json(["run", "demo", "--", "--json"])
