"""What a person can mend."""


class InputError(ValueError):
    """Something a person gave us cannot be used. Says what was found, what was needed, what to do."""
