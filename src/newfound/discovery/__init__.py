"""What a person does: discover, look, name, predict."""
