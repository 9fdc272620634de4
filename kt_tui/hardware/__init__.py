"""The Machine: CPU, NUMA, memory, limits and GPUs, read without trusting any file or driver."""

from kt_tui.hardware.capture import capture_machine
from kt_tui.hardware.machine import Machine, machine_from_json
from kt_tui.hardware.read import read_machine, refresh_memory

__all__ = ["Machine", "capture_machine", "machine_from_json", "read_machine", "refresh_memory"]
