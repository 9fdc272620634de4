import json
from dataclasses import replace
from typing import Any

import pytest
import torch

from engine.budget import PAGE_TOKENS, model_shape
from engine.config import EngineConfig
from engine.errors import CheckpointError, ContextOverflowError, EngineError, KvPoolFullError
from engine.runner import Row, Runner, Sequence, choose_device, choose_kv_tokens


def prompt(length: int, seed: int = 0) -> list[int]:
    return torch.randint(0, 300, (length,), generator=torch.Generator().manual_seed(length + seed)).tolist()


def feed(runner: Runner, sequence: Sequence, ids: list[int], chunk: int = 1 << 30) -> torch.Tensor:
    logits = None
    for at in range(0, len(ids), chunk):
        (logits,) = runner.step([Row(sequence, ids[at : at + chunk], at + chunk >= len(ids))])
    assert logits is not None
    return logits


@pytest.fixture(params=["minimax_m2", "llama"])
def runner(request: Any, minimax: Any, llama: Any) -> Runner:
    case = minimax(store="f32") if request.param == "minimax_m2" else llama({"other": "F32"})
    loaded: Runner = case.load()
    return loaded


def same(a: torch.Tensor | None, b: torch.Tensor | None) -> None:
    """Equal up to the rounding of float32 sums that are taken in another order."""
    assert a is not None
    assert b is not None
    torch.testing.assert_close(a, b, rtol=0, atol=4e-5 * float(b.std()))


@pytest.mark.parametrize("chunk", [1, 7, 64, 65, 129])
def test_a_prompt_in_chunks_gives_what_it_gives_in_one_piece(runner, chunk):
    ids = prompt(130)
    whole = feed(runner, runner.open_sequence(), ids)
    same(feed(runner, runner.open_sequence(), ids, chunk), whole)


def test_a_second_turn_gives_what_the_whole_conversation_gives(runner):
    first, answer, second = prompt(40), prompt(5, seed=1), prompt(23, seed=2)
    conversation = runner.open_sequence()
    feed(runner, conversation, first)
    for token in answer:
        feed(runner, conversation, [token])
    same(feed(runner, conversation, second), feed(runner, runner.open_sequence(), first + answer + second))
    assert conversation.length == 68


def test_sequences_side_by_side_give_what_they_give_alone(runner):
    """A prompt in chunks, another being decoded, and a third that comes and goes between them."""
    a, b, c = prompt(70), prompt(30, seed=1), prompt(20, seed=2)
    alone = [feed(runner, runner.open_sequence(), ids) for ids in (a, b, c)]
    first, second, third = (runner.open_sequence() for _ in range(3))
    feed(runner, second, b[:20])
    for step in range(10):
        rows = [Row(first, a[7 * step : 7 * step + 7], step == 9), Row(second, [b[20 + step]], step == 9)]
        if step == 4:
            rows.insert(1, Row(third, c, want_logits=True))
        logits = runner.step(rows)
        if step == 4:
            same(logits[1], alone[2])
            assert logits[0] is logits[2] is None
            runner.close_sequence(third)
    same(logits[0], alone[0])
    same(logits[1], alone[1])


def test_pages_in_pieces_give_what_one_piece_gives(runner):
    """Sequences of all sizes fragment the cache, so that the last one's history lies in several places."""
    ids = prompt(300)
    whole = feed(runner, runner.open_sequence(), ids)
    others = [runner.open_sequence() for _ in range(10)]
    for sequence in others:
        feed(runner, sequence, ids[:50])
    for sequence in others[::2]:
        runner.close_sequence(sequence)
    scattered = runner.open_sequence()
    logits = feed(runner, scattered, ids, 60)
    assert len(scattered.table.runs) > 1
    same(logits, whole)
    feed(runner, scattered, ids[:1])


def test_closing_gives_the_pages_back_once(runner):
    sequence = runner.open_sequence()
    feed(runner, sequence, prompt(65))
    assert runner.stats.kv_tokens_used == 2 * PAGE_TOKENS
    runner.close_sequence(sequence)
    other = runner.open_sequence()
    feed(runner, other, [1])
    runner.close_sequence(sequence)
    assert runner.stats.kv_tokens_used == PAGE_TOKENS
    with pytest.raises(ValueError, match="closed"):
        runner.step([Row(sequence, [1], want_logits=True)])


def test_a_full_cache_is_told_before_and_refused_at_the_step(llama):
    runner = llama({"other": "Q8_0"}).load(max_total_tokens=3 * PAGE_TOKENS)
    first, second = runner.open_sequence(), runner.open_sequence()
    assert runner.reserve(first, 2 * PAGE_TOKENS)
    assert not runner.reserve(second, PAGE_TOKENS + 1)
    with pytest.raises(KvPoolFullError, match="192 tokens"):
        runner.step(
            [Row(first, [1], want_logits=True), Row(second, [1] * (PAGE_TOKENS + 1), want_logits=True)]
        )
    assert first.length == second.length == 0
    feed(runner, first, prompt(100))


def test_the_context_ends_with_a_sentence(runner):
    sequence = runner.open_sequence()
    feed(runner, sequence, prompt(512))
    with pytest.raises(ContextOverflowError, match="512"):
        runner.step([Row(sequence, [1], want_logits=True)])
    assert sequence.length == 512


def test_rows_that_make_no_sense_are_refused(runner):
    sequence = runner.open_sequence()
    for tokens in ([], [-1], [300], [5, 1 << 40]):
        with pytest.raises(ValueError, match="token ids from 0 to 299"):
            runner.step([Row(sequence, tokens, want_logits=True)])
    with pytest.raises(ValueError, match="twice"):
        runner.step([Row(sequence, [1], want_logits=True), Row(sequence, [2], want_logits=True)])
    assert runner.step([]) == []
    assert sequence.length == 0


def test_progress_counts_every_byte_of_the_matrices(minimax):
    reports = []
    case = minimax(store="fp8")
    runner = Runner.load(EngineConfig(case.path, cpu_threads=1, max_total_tokens=64), reports.append)
    assert [report.phase for report in reports] == sorted(report.phase for report in reports)
    weights = [report for report in reports if report.phase == "weights"]
    done = [report.done for report in weights]
    assert done == sorted(done)
    assert done[0] == 0
    assert done[-1] == weights[-1].total
    # All but norms, router and embedding, which are read where they are.
    assert 0.5 * runner.stats.weight_bytes < weights[-1].total <= runner.stats.weight_bytes


def test_settings_that_cannot_be_kept_are_refused(llama):
    case = llama({"other": "Q8_0"})
    for settings, words in (
        ({"context_length": 513}, "--context-length 513 is more than the 512"),
        ({"max_total_tokens": 1 << 31}, "--max-total-tokens 2147483648 takes"),
        ({"gpu_experts": 4}, "--gpu-experts 4 asks for a GPU"),
        ({"device": "cuda"}, "--device cuda asks for a GPU"),
    ):
        with pytest.raises(EngineError, match=words):
            case.load(**settings)
    assert case.load(context_length=100).context_length == 100


def test_a_wrong_kernel_variant_is_told_in_a_sentence(llama, monkeypatch):
    monkeypatch.setenv("KT_CPU_ISA", "sse9")
    with pytest.raises(EngineError, match="KT_CPU_ISA=sse9"):
        llama({"other": "Q8_0"}).load()


def test_the_cpu_is_what_auto_means(tmp_path):
    assert choose_device(EngineConfig(tmp_path, gpu_experts=0)).type == "cpu"


def test_the_cache_is_one_context_as_far_as_memory_allows(minimax, tmp_path):
    shape = model_shape(json.loads((minimax(store="bf16").path / "config.json").read_text()))
    config = EngineConfig(tmp_path)
    assert choose_kv_tokens(config, shape, 1 << 40) == 512
    assert choose_kv_tokens(config, replace(shape, context_length=100), 1 << 40) == 128
    small = choose_kv_tokens(config, shape, 600_000)
    assert 0 < small < 512
    assert small % PAGE_TOKENS == 0
    with pytest.raises(EngineError, match="too little"):
        choose_kv_tokens(config, shape, 1000)
    with pytest.raises(EngineError, match=r"0\.0 GiB"):
        choose_kv_tokens(config, shape, -(1 << 40))


def test_an_fp8_value_that_is_no_number_is_named(minimax, tmp_path):
    source = minimax(store="fp8").path
    for file in source.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    shard = tmp_path / "model.safetensors"
    data = bytearray(shard.read_bytes())
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    begin = 8 + int.from_bytes(data[:8], "little")
    begin += header["model.layers.1.self_attn.o_proj.weight"]["data_offsets"][0]
    data[begin + 77] = 0x7F
    shard.write_bytes(data)
    with pytest.raises(CheckpointError, match=r"layers\.1\.self_attn\.o_proj\.weight cannot be used"):
        Runner.load(EngineConfig(tmp_path, cpu_threads=1))
