from pathlib import Path

import pytest

from kt_tui.supervise.log import LogRing
from kt_tui.supervise.logfile import BoundedLog
from kt_tui.supervise.tail import LogTail


@pytest.fixture
def log(tmp_path):
    made = BoundedLog(str(tmp_path / "engine.log"), 1000)
    yield made
    made.close()


def follow(log, ring, **options):
    return LogTail(Path(log.path), ring, **options)


def drain(tail):
    for _ in range(50):
        tail.poll()


def test_the_file_never_grows_beyond_its_limit(log, tmp_path):
    for number in range(500):
        log.write(b"line %03d\n" % number)
        assert (tmp_path / "engine.log").stat().st_size <= 1000 + 200
    assert {path.name for path in tmp_path.iterdir()} == {"engine.log", "engine.log.1"}
    assert log.written == 500 * 9
    assert log.lost_bytes == 0


@pytest.mark.parametrize("every", [1, 7, 50, 100])
def test_a_reader_that_keeps_up_sees_every_line_across_rotations(log, every):
    ring = LogRing()
    tail = follow(log, ring)
    for number in range(600):
        log.write(b"line %03d\n" % number)
        if number % every == 0:
            drain(tail)
    tail.finish()
    assert [line.text for line in ring] == [f"line {n:03d}" for n in range(600)]
    assert ring.dropped_bytes == 0


def test_a_reader_that_was_away_is_told_how_much_is_missing(log):
    ring = LogRing()
    tail = follow(log, ring)
    log.write(b"first\n")
    drain(tail)
    for number in range(1000):
        log.write(b"line %03d\n" % number)
    tail.finish()
    texts = [line.text for line in ring]
    assert texts[0] == "first"
    assert texts[-1] == "line 999"
    shown = sum(len(text) + 1 for text in texts if text.startswith("line "))
    assert ring.dropped_bytes == 9 * 1000 - shown
    assert any("bytes of output came faster" in text for text in texts)


def test_only_the_end_of_a_long_log_is_read_when_attaching(log):
    log.write(b"x" * 500 + b"\nlast line\n")
    ring = LogRing()
    tail = follow(log, ring, only_last=15)
    tail.finish()
    assert [line.text for line in ring][-1] == "last line"
    assert "not shown" in next(iter(ring)).text


def test_a_reader_far_behind_skips_to_the_end(tmp_path):
    path = tmp_path / "big.log"
    path.write_bytes(b"0123456789\n" * 1_000_000)
    ring = LogRing()
    tail = LogTail(path, ring)
    drain(tail)
    assert ring.dropped_bytes > 0
    path.open("ab").write(b"end\n")
    tail.finish()
    assert [line.text for line in ring][-1] == "end"


def test_a_full_disk_is_counted_and_never_raised():
    log = BoundedLog("/dev/full", 1 << 20)
    log.write(b"lost")
    assert log.lost_bytes == 4
    log.close()


def test_a_log_that_cannot_be_made_is_counted_too(tmp_path):
    log = BoundedLog(str(tmp_path / "no" / "folder" / "x.log"), 100)
    log.write(b"lost")
    assert log.lost_bytes == 4
    log.close()
