"""newfound."""
