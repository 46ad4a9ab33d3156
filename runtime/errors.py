"""What a run reports to a person."""


class RunError(Exception):
    """A bundle, an option, a prompt, a device or a call that cannot be used.

    The message says what was found, where, what was expected, and what to do.
    """


class PromptError(RunError):
    """A prompt that cannot be run; nothing was changed by it, and another one may be."""
