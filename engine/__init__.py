"""The embedded inference engine: attention with torch, experts with the CPU kernels of ``csrc``.

It imports nothing of ``kt_tui``, which starts it as a process of its own.
"""
