"""Where images come from and how they are seen."""
