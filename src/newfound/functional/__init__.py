"""Pure functions: no state, no files."""
