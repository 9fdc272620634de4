"""Launch options of the ``kt`` command line by the names that kt-tui has for them."""

from __future__ import annotations

NAMES = {
    "kt-num-gpu-experts": "gpu-experts",
    "kt-cpuinfer": "cpu-threads",
    "kt-threadpool-count": "numa-nodes",
    "kt-weight-path": "weights-path",
    "kt-gpu-prefill-token-threshold": "kt-gpu-prefill-threshold",
    "tp": "tensor-parallel-size",
    "tp-size": "tensor-parallel-size",
}
"""Engine flags (without dashes) that are launch options under another name; all others keep theirs."""

RUN_KEYS = {
    "kt_method": "kt-method",
    "weights_path": "weights-path",
    "cpu_threads": "cpu-threads",
    "numa_nodes": "numa-nodes",
    "gpu_experts": "gpu-experts",
    "tp_size": "tensor-parallel-size",
    "mem_fraction_static": "mem-fraction-static",
    "kv_cache": "max-total-tokens",
    "chunk_prefill": "chunked-prefill-size",
    "gpu_prefill_threshold": "kt-gpu-prefill-threshold",
    "tool_call_parser": "tool-call-parser",
    "reasoning_parser": "reasoning-parser",
    "host": "host",
    "port": "port",
}
"""Keys of ``run_configs.yaml`` -> launch options."""


def option_name(flag: str) -> str:
    """The launch option that a flag stands for."""
    flag = flag.lstrip("-").replace("_", "-")
    return NAMES.get(flag, flag)
