"""The loop, for every method and for stage one."""
