"""The comparison with other engines: programs that stand in for them show what is asked, read and said."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import gguf
import numpy as np
import pytest

from bench.kernel_cases import Shape
from bench.peers import environment, layers
from bench.peers.__main__ import main, parse, programs
from bench.peers.answering import answering
from bench.peers.environment import PeerError, peer_python
from bench.peers.layers import our_layer
from bench.peers.llama_bench import LlamaBench, compare, touched_bytes
from bench.peers.llama_bench import parse as parse_bench
from bench.peers.synthetic_moe import Shape as ModelShape
from bench.peers.synthetic_moe import demo_vocabulary, write
from engine.cpu import Team

SHAPE = Shape("small", 256, 256, 16, 4)


def script(path: Path, text: str) -> Path:
    path.write_text(f"#!{sys.executable}\n{text}")
    path.chmod(0o755)
    return path


BENCH = """
import json, sys
a = sys.argv
print("a warning")
print(json.dumps([
    {"build_commit": "1a2b", "n_prompt": int(a[a.index("-p") + 1]), "n_gen": 0, "avg_ts": 50.0},
    {"build_commit": "1a2b", "n_prompt": 0, "n_gen": int(a[a.index("-n") + 1]), "avg_ts": 0.5},
]))
open(a[0] + ".said", "w").write(" ".join(a[1:]))
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("model") / "m.gguf"
    write(path, ModelShape(256, 256, 8, 2, 2, 1, 64, layers=1), "q4_0", demo_vocabulary())
    return path


def test_a_llama_bench_is_run_beside_the_engine(tmp_path, model):
    program = script(tmp_path / "llama-bench", BENCH)
    peers = [LlamaBench(program, ("-fa", "1")), LlamaBench(tmp_path / "none")]
    ours, theirs = compare("m", model, model, peers, 1, 32, 4, 2)
    said = (tmp_path / "llama-bench.said").read_text()
    assert said == f"-m {model} -t 1 -p 32 -n 4 -r 1 -o json -fa 1"
    assert (ours.engine, ours.prefill_ratio, ours.decode_ratio) == ("kt-tui", 1, 1)
    assert theirs.engine == "llama-bench 1a2b -fa 1"
    assert (theirs.prefill_tokens_per_s, theirs.decode_tokens_per_s) == (50.0, 0.5)
    assert theirs.prefill_ratio == pytest.approx(ours.prefill_tokens_per_s / 50)
    assert theirs.decode_ratio == pytest.approx(ours.decode_tokens_per_s / 0.5)
    assert theirs.decode_gb_per_s == pytest.approx(touched_bytes(model) * 0.5 / 1e9)
    assert "ours x" in str(theirs)
    assert json.loads(ours.json())["model"] == "m"


def test_a_token_needs_the_chosen_experts_and_not_the_table_of_embeddings(model):
    total = 0.0
    for tensor in gguf.GGUFReader(model).tensors:
        if tensor.name != "token_embd.weight":
            total += int(tensor.n_bytes) / (4 if "_exps" in tensor.name else 1)
    assert touched_bytes(model) == total > 0
    assert touched_bytes(Path(__file__)) == 0


@pytest.mark.parametrize("text", ["", "no json", "[1]", '{"n_prompt": 1}'])
def test_what_is_no_llama_bench_is_named(text):
    with pytest.raises(PeerError, match="/x/llama did not print llama-bench's JSON"):
        parse_bench(text, Path("/x/llama"))


def test_a_llama_bench_that_fails_says_why(tmp_path):
    program = script(tmp_path / "b", "import sys; sys.exit('unknown model architecture')")
    with pytest.raises(PeerError, match=r"exit status 1.*unknown model architecture"):
        LlamaBench(program).run(tmp_path / "m", 1, 1, 1)
    with pytest.raises(PeerError, match="cannot be run: No such file"):
        LlamaBench(tmp_path / "none").run(tmp_path / "m", 1, 1, 1)


def test_an_answering_program_that_ends_or_refuses_is_told():
    asks = [
        sys.executable,
        "-c",
        "import sys; print('{}', flush=True); sys.stdin.readline(); sys.exit('no more')",
    ]
    with (
        answering("it", asks) as peer,
        pytest.raises(PeerError, match="it ended with exit status 1; it said: no more"),
    ):
        peer.ask(a=1)
    refuses = [sys.executable, "-c", 'print(\'{"refused": "not here"}\')']
    with pytest.raises(PeerError, match="it: not here"), answering("it", refuses):
        pass
    killed = [sys.executable, "-c", "import os; os.kill(os.getpid(), 4)"]
    with pytest.raises(PeerError, match="it ended with signal 4; it said: nothing"), answering("it", killed):
        pass


PEER = """
import json, sys, numpy
settings = json.loads(sys.argv[1])
weights = numpy.load(settings["weights"])
assert weights["gate"].nbytes == settings["intermediate"] * settings["hidden"] * 2, weights["gate"].nbytes
print(json.dumps({"variant": "avx9", "kind": "Kind"}), flush=True)
for line in sys.stdin:
    asked = json.loads(line)
    if "check" in asked:
        given = numpy.load(asked["check"])
        numpy.save(asked["out"], MINE(given, weights))
        print("{}", flush=True)
    else:
        routes = numpy.load(asked["case"])["routes"]
        if routes.shape[1] == 40:
            sys.exit("too long")
        assert routes.shape[2] == settings["top"]
        print(json.dumps({"seconds": 0.5}), flush=True)
"""
RIGHT = """
def MINE(given, weights):
    gate, down = (
        (weights[name].view(numpy.uint16).astype(numpy.uint32) << 16).view(numpy.float32).reshape(256, 256)
        for name in ("gate", "down")
    )
    h = given["x"] @ gate.T
    return (h / (1 + numpy.exp(-h)) * h) @ down.T * given["weights"].sum(1, keepdims=True)
"""


def stand_in(monkeypatch: pytest.MonkeyPatch, path: Path, text: str) -> None:
    monkeypatch.setattr(layers, "kt_kernel_python", lambda: path)
    monkeypatch.setattr(
        layers, "program", lambda python, asked: [sys.executable, str(python), json.dumps(asked)]
    )
    path.write_text(text)


def test_layers_are_compared_on_the_same_weights(tmp_path, monkeypatch, capsys):
    stand_in(monkeypatch, tmp_path / "p.py", RIGHT + PEER)
    rows = list(layers.compare(SHAPE, ["bf16"], [1, 20, 40], [1], 1e6, 0.01))
    assert [(row.engine, row.tokens) for row in rows] == [
        ("kt-tui", 1),
        ("kt-kernel", 1),
        ("kt-tui", 20),
        ("kt-kernel", 20),
        ("kt-tui", 40),
    ]
    mine, theirs = rows[:2]
    assert 0 < theirs.difference < 0.01  # the oracle of another program: both compute the same function
    assert theirs.milliseconds == 500
    assert theirs.ratio == pytest.approx(500 / mine.milliseconds)
    assert theirs.kernel == "avx9 Kind"
    assert (mine.unit, rows[2].unit) == ("GB/s", "GFLOP/s")
    assert mine.share == pytest.approx(mine.figure / mine.limit)
    assert "40 tokens: kt-kernel ended with exit status 1; it said: too long" in capsys.readouterr().err


def test_wrong_results_of_a_peer_show(tmp_path, monkeypatch):
    stand_in(monkeypatch, tmp_path / "p.py", "def MINE(given, weights): return given['x'] * 0\n" + PEER)
    rows = list(layers.compare(SHAPE, ["bf16"], [1], [1], 1e6, 0.01))
    assert rows[1].difference == pytest.approx(1)


def test_without_the_peer_our_rows_stand_alone(monkeypatch, capsys):
    def missing() -> Path:
        raise PeerError("pip cannot install kt-kernel here")

    monkeypatch.setattr(layers, "kt_kernel_python", missing)
    (row,) = layers.compare(SHAPE, ["q8_0"], [1], [1], 1e6, 0.01)
    assert row.engine == "kt-tui"
    assert "note: pip cannot install kt-kernel here" in capsys.readouterr().err


@pytest.mark.parametrize("fmt", layers.ALL_FORMATS)
def test_every_format_has_a_layer_and_weights_for_the_peer(tmp_path, fmt):
    layer = our_layer(Team(1), SHAPE, fmt, 1e6)
    asked = layers.settings(tmp_path, SHAPE, fmt, layer.experts, 1, 8)
    stored = np.load(tmp_path / "weights.npz")
    assert asked["format"] == fmt
    assert stored["gate"].nbytes == stored["down"].nbytes > 0


def test_what_pip_says_is_told_and_no_half_environment_is_left(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    with pytest.raises(PeerError, match=r"pip cannot install no-such-thing here; it said: .*no-such-thing"):
        peer_python("x", "no-such-thing")
    assert not (tmp_path / "kt-tui" / "peers" / "x").exists()


def test_an_environment_is_made_once(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(environment, "_pip", lambda python, *words: asked.append(words))
    for _ in range(2):
        python = peer_python("y", "a", alone=["b"])
    assert asked == [("a",), ("--no-deps", "b")]
    assert os.access(python, os.X_OK)
    peer_python("y", "a")
    assert len(asked) == 3


def test_the_command_line_pairs_programs_and_options(tmp_path, capsys):
    one, two = (script(tmp_path / name, "") for name in ("one", "two"))
    words = ["--llama-bench", str(one), "--llama-bench", str(two), "--llama-bench-options=-rtr 1"]
    assert programs(parse(words)) == [LlamaBench(one, ("-rtr", "1")), LlamaBench(two)]
    for wrong, reason in ((["--llama-bench-options=-x"], "more"), (["--gguf", "/none"], "/none is no file")):
        with pytest.raises(SystemExit):
            parse(wrong)
        assert reason in capsys.readouterr().err


def test_one_run_prints_json_lines(tmp_path, model, capsys):
    program = script(tmp_path / "llama-bench", BENCH)
    words = ["--only", "bench", "--no-demo", "--gguf", str(model), "--llama-bench", str(program), "--json"]
    assert main([*words, "--threads", "1", "--prompt", "16", "--tokens", "2", "--repeats", "1"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["engine"] for row in rows] == ["kt-tui", "llama-bench 1a2b"]
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF")
    words[4] = str(broken)
    assert main(words) == 1
    assert "error: kt-tui" in capsys.readouterr().err
