"""Published rows, and the demonstration on the embedded images."""
