"""The one error type of the export."""


class ExportError(ValueError):
    """Bad input to the export, said so that a person can act on it.

    The message names what was found, where, what was expected and what to do. Programs print it
    as one line and exit with 1; anything else that escapes is a fault of ours.
    """
