"""``python -m engine serve``."""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import logging
import os
import sys
from collections.abc import Sequence

from engine.config import API_KEY_VARIABLE, ConfigError, parse_config
from engine.errors import EngineError


def main(argv: Sequence[str] | None = None) -> int:
    """Run the engine; returns 0 after a signal to stop, 1 for a problem, 2 for wrong usage."""
    try:
        config = parse_config(sys.argv[1:] if argv is None else argv, os.environ)
    except ConfigError as error:
        for problem in error.problems:
            print(f"kt-engine error: {problem}", file=sys.stderr)  # noqa: T201
        return 2
    # A crash in native code (an illegal instruction, a bus error from a cut file) then says where it happened.
    faulthandler.enable()
    os.environ.pop(API_KEY_VARIABLE, None)  # programs that we start have no use for it
    # A reader of our output that went away is no reason to print tracebacks about it.
    logging.raiseExceptions = False
    logging.basicConfig(
        level=config.log_level.upper(), format="kt-engine log level=%(levelname)s %(message)s"
    )
    for noisy in ("uvicorn.error", "asyncio"):
        logging.getLogger(noisy).setLevel(logging.WARNING)

    from engine.server.listen import bind
    from engine.server.log import Log
    from engine.server.serve import failed, serve

    log = Log(config.log_level)
    try:
        if not config.model.exists():
            raise EngineError(
                f"There is no {config.model}; give the directory of a checkpoint or a GGUF file with --model."
            )
        listener = bind(config.host, config.port)
    except EngineError as error:
        return failed(error, log)
    log.line(phase="start", progress="0.00", detail="", pid=os.getpid(), port=listener.getsockname()[1])
    return asyncio.run(serve(config, listener, log))


if __name__ == "__main__":
    code = main()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    # Not sys.exit: a thread that is still reading weights, or a native pool, must not hold up or crash the end.
    os._exit(code)
