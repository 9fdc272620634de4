"""``python -m bench`` names the benchmarks; each prints its figures beside a limit or a peer of the same run."""

from __future__ import annotations

PROGRAMS = {
    "bench.kernels": "CPU kernels: decode and prefill beside the read bandwidth and FMA peak measured in the same run",
    "bench.peers": "layers beside kt-kernel, models beside llama.cpp and any llama-bench, in one run",
    "bench.speed": "the engine through HTTP: decode and prefill of both models beside llama.cpp",
    "bench.first_paint": "the panel: start to first paint, beside a minimal Textual program",
    "bench.idle": "the panel: processor share and bytes to the terminal while nothing happens",
    "bench.chat_stream": "the panel: cost of streaming into a chat with 200 messages of history",
}


def main() -> None:
    for module, text in PROGRAMS.items():
        print(f"python -m {module:<20} {text}")


if __name__ == "__main__":
    main()
