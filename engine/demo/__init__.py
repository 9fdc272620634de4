"""The demo model: SmolLM2-135M-Instruct turned into a genuine MiniMax-M2 mixture-of-experts checkpoint.

The dense model's answer is the right answer, so the checkpoint proves an engine's routing, its FP8 and its
norms on real language, from a 98 MB file that a Python package carries. ``python -m engine.demo build`` makes
it; `engine.demo.upcycle` says how and why it is exact.

Nothing is imported here, so that asking for the recipe's version costs nothing.
"""

RECIPE = 1
"""Version of what `build` writes; a checkpoint with another one is made again."""

MANIFEST = "manifest.json"
"""File in the checkpoint's folder with the size and SHA-256 of every other file."""
