"""A program that answers JSON lines with JSON lines, so that measurements of two programs can alternate."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from bench.peers.environment import PeerError


class Answering:
    """The program's two ends. It may say something first, which is `hello`."""

    def __init__(self, process: subprocess.Popen[str], log: Any, name: str) -> None:
        self._process, self._log, self._name = process, log, name
        self.hello = self._read()

    def ask(self, **question: object) -> dict[str, Any]:
        """Send one line and wait for the answer.

        Raises:
            PeerError: The program ended instead, or refused.
        """
        assert self._process.stdin
        try:
            self._process.stdin.write(json.dumps(question) + "\n")
            self._process.stdin.flush()
        except OSError:
            pass  # it has ended: reading says why
        return self._read()

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout
        line = self._process.stdout.readline()
        if not line:
            code = self._process.wait()
            self._log.seek(0)
            said = " ".join(self._log.read().decode(errors="replace").split())[-600:]
            how = f"signal {-code}" if code < 0 else f"exit status {code}"
            raise PeerError(f"{self._name} ended with {how}; it said: {said or 'nothing'}")
        answer: dict[str, Any] = json.loads(line)
        if "refused" in answer:
            raise PeerError(f"{self._name}: {answer['refused']}")
        return answer


@contextmanager
def answering(name: str, argv: Sequence[str]) -> Iterator[Answering]:
    """Run the program until the block ends.

    Raises:
        PeerError: It does not start.
    """
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True)
        try:
            yield Answering(process, log, name)
        finally:
            assert process.stdin
            try:
                process.stdin.close()
                process.wait(10)
            except (OSError, subprocess.TimeoutExpired):
                process.kill()
                process.wait()
