"""Measuring this machine for what a launch needs to know of it."""
