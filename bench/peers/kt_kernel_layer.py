"""Runs one mixture-of-experts layer with kt-kernel. Runs in the peer's own environment and imports nothing of ours.

usage: python kt_kernel_layer.py '{"format": "fp8_block128", "hidden": 2048, ...}' (see `Layer`)

It writes one JSON object a line: first what was loaded, then an answer to each line that it reads,
`{"case": "routes.npz", "seconds": 0.4}` -> the median seconds of a call with these routes, or
`{"check": "in.npz", "out": "out.npy"}` -> the outputs for these inputs.
"""

import json
import os
import statistics
import sys
import time
from pathlib import Path

import kt_kernel
import numpy as np
import torch

MOE = kt_kernel.kt_kernel_ext.moe
CLASSES = {
    "fp8_block128": ["AMXFP8_MOE", "AVX2FP8_MOE"],
    "fp8_channel": ["AMXFP8PerChannel_MOE"],
    "bf16": ["AMXBF16_MOE", "AVX2BF16_MOE"],
    "mxfp8": ["AMXMXFP8_KGroup_MOE", "AVX2MXFP8_MOE"],
    "mxfp4": ["AMXFP4_KGroup_MOE", "AVX2MXFP4_MOE"],
    "int4_g32": ["AMXInt4_KGroup_MOE", "AVXVNNI256RawInt4_MOE", "AVX2RawInt4_MOE"],
    "int4_g128": ["AVXVNNI256GPTQInt4_MOE", "AVX2GPTQInt4_MOE"],
    "int8": ["AMXInt8_MOE"],
    "q4_k": ["MOE"],
    "q8_0": ["MOE"],
    "q4_0": ["MOE"],
}
"""Format -> the classes that compute it, in the order in which kt-kernel itself prefers them."""
GGML_TYPES = {"q4_0": 2, "q8_0": 8, "q4_k": 12}
GGML_BF16 = 30


def class_of(fmt):
    """The name of the class to use on this processor, or None."""
    vnni = " avx_vnni" in Path("/proc/cpuinfo").read_text("utf-8")
    for name in CLASSES.get(fmt, []):
        if hasattr(MOE, name) and (vnni or "AVXVNNI" not in name):
            return name
    return None


class Layer:
    """A layer whose experts all have the same weights.

    Settings: `format`, `hidden`, `intermediate`, `experts`, `top`, `threads`, `longest` (tokens of a call at most) and
    `weights`, an .npz with `gate`, `gate_scale`, `down`, `down_scale` as the checkpoint of such a format has them.
    """

    def __init__(self, settings):
        fmt = self.format = settings["format"]
        self.top, self.hidden = settings["top"], settings["hidden"]
        experts, inner = settings["experts"], settings["intermediate"]
        self.kind = class_of(fmt)
        if self.kind is None:
            raise ValueError(f"kt-kernel's {kt_kernel.__cpu_variant__} build has no class for {fmt}")
        stored = np.load(settings["weights"])
        pool = kt_kernel.kt_kernel_ext.WorkerPoolConfig()
        pool.subpool_count, pool.subpool_numa_map = 1, [0]
        pool.subpool_thread_count = [settings["threads"]]
        self.cpu = kt_kernel.kt_kernel_ext.CPUInfer(pool)
        config = MOE.MOEConfig(experts, self.top, self.hidden, inner, 0)
        config.pool, config.layer_idx, config.max_len = self.cpu.backend_, 0, max(64, settings["longest"])
        config.quant_config.zero_point = False
        gate, down = torch.from_numpy(stored["gate"]), torch.from_numpy(stored["down"])
        if fmt in GGML_TYPES or fmt == "int8":
            # These classes take one block of memory with all experts, and GGUF weights are used where they lie.
            self.kept = [part.reshape(1, -1).repeat(experts, 1) for part in (gate, gate, down)]
            config.gate_proj, config.up_proj, config.down_proj = [part.data_ptr() for part in self.kept]
            if fmt in GGML_TYPES:
                config.gate_type = config.up_type = config.down_type = GGML_TYPES[fmt]
                config.hidden_type, config.m_block, config.group_min_len = GGML_BF16, 32, 10
                config.group_max_len = config.max_len
        else:
            scales = [self.scale(stored[name]) for name in ("gate_scale", "down_scale")]
            self.kept = [gate, down, *scales]
            config.gate_projs = config.up_projs = [[gate.data_ptr()] * experts]
            config.down_projs = [[down.data_ptr()] * experts]
            config.gate_scales = config.up_scales = [
                [scales[0].data_ptr() if len(scales[0]) else 0] * experts
            ]
            config.down_scales = [[scales[1].data_ptr() if len(scales[1]) else 0] * experts]
            groups = {"fp8_block128": (8, 128), "fp8_channel": (8, 128), "mxfp8": (8, 32), "mxfp4": (4, 32)}
            groups |= {"int4_g32": (4, 32), "int4_g128": (4, 128)}
            if fmt in groups:
                config.quant_config.bits, config.quant_config.group_size = groups[fmt]
            if fmt == "fp8_channel":
                config.quant_config.per_channel = True
        self.moe = getattr(MOE, self.kind)(config)
        order = torch.arange(experts, dtype=torch.int64)
        self.cpu.submit(self.moe.load_weights_task(order.data_ptr()))
        self.cpu.sync()

    def scale(self, stored):
        """Scales in the type that kt-kernel reads."""
        if self.format == "int4_g32":
            return torch.from_numpy(stored.view(np.int16)).view(torch.bfloat16)
        if self.format == "int4_g128":
            return torch.from_numpy(stored.view(np.float16).astype(np.float32))
        if self.format == "mxfp4":
            return torch.from_numpy(np.exp2(stored.astype(np.float32) - 127)).bfloat16()
        return torch.from_numpy(stored)

    def forward(self, x, ids, weights):
        """bf16 [tokens, hidden], int64 and float32 [tokens, top] -> bf16 [tokens, hidden]."""
        out, count = torch.zeros_like(x), torch.tensor([len(x)], dtype=torch.int32)
        pointers = [part.data_ptr() for part in (ids, weights, x, out)]
        self.cpu.submit(self.moe.forward_task(count.data_ptr(), self.top, *pointers, False))
        self.cpu.sync()
        return out

    def median_seconds(self, routes, seconds):
        """Median time of a call; `routes` [turns, tokens, top] are taken in turn."""
        tokens = routes.shape[1]
        x = torch.randn(tokens, self.hidden).bfloat16()
        ids = [torch.from_numpy(route.astype(np.int64)) for route in routes]
        weights = torch.full((tokens, self.top), 1 / self.top)
        self.forward(x, ids[-1], weights)
        times = []
        start = time.perf_counter()
        while not times or (time.perf_counter() - start < seconds and len(times) < 500):
            before = time.perf_counter()
            self.forward(x, ids[len(times) % len(ids)], weights)
            times.append(time.perf_counter() - before)
        return statistics.median(times)


def main():
    """Answer until the input ends."""
    settings = json.loads(sys.argv[1])
    torch.set_num_threads(1)
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what the library prints goes to the error output

    def answer(**values):
        print(json.dumps(values), file=answers, flush=True)

    try:
        layer = Layer(settings)
    except ValueError as reason:
        answer(refused=str(reason))
        return
    answer(kind=layer.kind, variant=kt_kernel.__cpu_variant__, version=kt_kernel.__version__)
    for line in sys.stdin:
        asked = json.loads(line)
        if "check" in asked:
            given = np.load(asked["check"])
            x = torch.from_numpy(given["x"]).bfloat16()
            ids = torch.from_numpy(given["ids"].astype(np.int64))
            np.save(asked["out"], layer.forward(x, ids, torch.from_numpy(given["weights"])).float().numpy())
            answer(done=True)
        else:
            answer(seconds=layer.median_seconds(np.load(asked["case"])["routes"], asked["seconds"]))


main()
os._exit(0)  # the library's threads do not end by themselves
