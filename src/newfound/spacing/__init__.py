"""Spacing Loss for anybody's own training loop: it needs torch and pure functions alone."""
