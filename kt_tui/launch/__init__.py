"""Launches: the parameter table, resolution with origins, the memory plan, checks, and the command."""

from kt_tui.launch.checks import Problem
from kt_tui.launch.memory import DeviceMemory, MemoryPlan, ModelFacts, read_facts
from kt_tui.launch.options import add_launch_arguments, options_from
from kt_tui.launch.plan import LaunchPlan, plan_launch
from kt_tui.launch.resolve import Origin, Resolved, Sources, resolve
from kt_tui.launch.schema import ENGINES, SCHEMA, Group, Kind, Parameter

__all__ = [
    "ENGINES",
    "SCHEMA",
    "DeviceMemory",
    "Group",
    "Kind",
    "LaunchPlan",
    "MemoryPlan",
    "ModelFacts",
    "Origin",
    "Parameter",
    "Problem",
    "Resolved",
    "Sources",
    "add_launch_arguments",
    "options_from",
    "plan_launch",
    "read_facts",
    "resolve",
]
