"""Runs a graph: operators by name, what to compute and when, the debugger."""
