"""Checkpoints on disk: which tensors there are, in which format, mapped into memory without a copy."""
