"""What the server tells about itself: ``/health``, ``/v1/models``, ``/metrics``, ``/v1/loads``."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, field

from prometheus_client import generate_latest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from engine.api import Engine
from engine.request import RequestError

PROMETHEUS_TYPE = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Status:
    """These endpoints on one engine. All are cheap: none waits for the engine thread."""

    engine: Engine
    version: str
    created: int = field(default_factory=lambda: int(time.time()))

    async def root(self, _: Request) -> Response:
        """``GET /`` and ``HEAD /``: clients probe whether anything is here."""
        return JSONResponse(
            {"name": "kt-engine", "version": self.version, "model": self.engine.config.model_name}
        )

    async def info(self, _: Request) -> Response:
        """``GET /info``: what runs here and how it computes; sizes in bytes are in ``/v1/loads``."""
        ready = self.engine.ready
        if ready is None:
            raise RequestError(
                "The model is loading; try again in a moment.", code="model_loading", status=503
            )
        return JSONResponse(
            {
                "name": "kt-engine",
                "version": self.version,
                "model": self.engine.config.model_name,
                "context_length": ready.context_length,
                "kv_tokens": ready.kv_tokens,
                "kernels": None if ready.kernels is None else asdict(ready.kernels),
            }
        )

    async def health(self, _: Request) -> Response:
        """``GET /health``: 200 when requests are taken, 503 with the phase while loading and while stopping."""
        if self.engine.ready is not None and self.engine.accepts:
            return JSONResponse({"status": "ok", "model": self.engine.config.model_name})
        now = self.engine.progress
        stopping = not self.engine.accepts
        document = {
            "status": "stopping" if stopping else "loading",
            "phase": "stopping" if stopping else now.phase,
            "progress": None if stopping else now.fraction,
            "detail": "" if stopping else now.detail,
        }
        return JSONResponse(document, 503, {"Retry-After": "1"})

    async def models(self, _: Request) -> Response:
        """``GET /v1/models``."""
        return JSONResponse({"object": "list", "data": [self._model()]})

    async def model(self, request: Request) -> Response:
        """``GET /v1/models/NAME``."""
        name, served = request.path_params["name"], self.engine.config.model_name
        if name != served:
            raise RequestError(
                f"The model {name[:200]!r} is not here; this server has {served!r}.",
                param="model",
                code="model_not_found",
                status=404,
            )
        return JSONResponse(self._model())

    def _model(self) -> dict[str, object]:
        ready = self.engine.ready
        if ready is None:
            raise RequestError(
                "The model is loading; try again in a moment.", code="model_loading", status=503
            )
        name = self.engine.config.model_name
        return {
            "id": name,
            "object": "model",
            "created": self.created,
            "owned_by": "kt-engine",
            "root": name,
            "parent": None,
            "max_model_len": min(ready.context_length, ready.kv_tokens),
        }

    async def metrics(self, _: Request) -> Response:
        """``GET /metrics``, in the Prometheus text format."""
        return Response(generate_latest(self.engine.stats.registry), media_type=PROMETHEUS_TYPE)

    async def loads(self, _: Request) -> Response:
        """``GET /v1/loads``, in SGLang's form (one data-parallel rank)."""
        stats = self.engine.stats
        load = stats.load
        throughput = round(stats.tokens_per_s, 3)
        total = load.running + load.waiting
        usage = round(load.token_usage, 6)
        rank = {
            "dp_rank": 0,
            "num_running_reqs": load.running,
            "num_waiting_reqs": load.waiting,
            "num_total_reqs": total,
            "num_used_tokens": load.kv_tokens_used,
            "max_total_num_tokens": load.kv_tokens_total,
            "token_usage": usage,
            "gen_throughput": throughput,
            "utilization": round(load.running / stats.max_running_requests, 6),
            "max_running_requests": stats.max_running_requests,
            "memory": {
                "weight_gb": round(load.weight_bytes / 2**30, 6),
                "kv_cache_gb": round(load.kv_bytes / 2**30, 6),
                "token_capacity": load.kv_tokens_total,
            },
            "queues": {"waiting": load.waiting},
        }
        aggregate = {
            "total_running_reqs": load.running,
            "total_waiting_reqs": load.waiting,
            "total_reqs": total,
            "avg_token_usage": usage,
            "avg_throughput": throughput,
            "avg_utilization": rank["utilization"],
        }
        return JSONResponse(
            {
                "timestamp": time.time(),
                "version": self.version,
                "dp_rank_count": 1,
                "loads": [rank],
                "aggregate": aggregate,
            }
        )
