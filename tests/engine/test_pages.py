import random

import pytest

from engine.budget import PAGE_TOKENS
from engine.pages import PagePool, PageTable


def slots(table: PageTable, begin: int, end: int) -> list[int]:
    return [slot for start, stop in table.slots(begin, end) for slot in range(start, stop)]


def test_a_growing_sequence_stays_in_one_piece():
    pool, table = PagePool(8 * PAGE_TOKENS), PageTable()
    for tokens in range(1, 8 * PAGE_TOKENS, 37):
        assert pool.grow(table, tokens)
    assert table.runs == [(0, 8 * PAGE_TOKENS)]


def test_two_sequences_growing_in_turns_stay_in_one_piece_each():
    pool, tables = PagePool(16 * PAGE_TOKENS), [PageTable(), PageTable()]
    for pages in range(1, 9):
        assert all(pool.grow(table, pages * PAGE_TOKENS) for table in tables)
    assert [len(table.runs) for table in tables] == [1, 1]
    assert pool.tokens_used == pool.tokens


def test_a_full_pool_refuses_and_changes_nothing():
    pool, first, second = PagePool(4 * PAGE_TOKENS), PageTable(), PageTable()
    assert pool.grow(first, 3 * PAGE_TOKENS)
    assert not pool.grow(second, PAGE_TOKENS + 1)
    assert second.runs == []
    assert pool.tokens_used == 3 * PAGE_TOKENS
    assert pool.grow(second, PAGE_TOKENS)


def test_released_pages_are_used_again():
    pool, table = PagePool(4 * PAGE_TOKENS), PageTable()
    for _ in range(5):
        assert pool.grow(table, 4 * PAGE_TOKENS)
        pool.release(table)
    assert pool.tokens_used == 0


def test_a_pool_of_less_than_a_page_holds_nothing():
    assert not PagePool(PAGE_TOKENS - 1).grow(PageTable(), 1)


@pytest.mark.parametrize("seed", range(5))
def test_no_slot_ever_belongs_to_two_sequences(seed):
    """Random growth and release against a plain model: a list of slots for each sequence."""
    source = random.Random(seed)
    pool = PagePool(40 * PAGE_TOKENS)
    tables: dict[int, PageTable] = {}
    lengths: dict[int, int] = {}
    for step in range(300):
        name = source.randrange(6)
        if source.random() < 0.15 and name in tables:
            pool.release(tables.pop(name))
            del lengths[name]
            continue
        table = tables.setdefault(name, PageTable())
        before = slots(table, 0, table.capacity)
        length = lengths.get(name, 0) + source.randrange(1, 3 * PAGE_TOKENS)
        free = pool.tokens - pool.tokens_used
        grew = pool.grow(table, length)
        assert grew == (max(0, length - len(before)) <= free), step
        after = slots(table, 0, table.capacity)
        assert after[: len(before)] == before
        lengths[name] = length if grew else lengths.get(name, 0)
        assert table.capacity >= lengths[name]
        held = [slot for other in tables.values() for slot in slots(other, 0, other.capacity)]
        assert len(set(held)) == len(held) == pool.tokens_used
        assert not held or max(held) < pool.tokens
        begin = source.randrange(len(after) + 1)
        end = source.randrange(begin, len(after) + 1)
        assert slots(table, begin, end) == after[begin:end]
