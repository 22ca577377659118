"""What a user can have got wrong is a `TilecError`: one clear sentence that names the thing and says what to do.

Command lines print the sentence alone and leave with exit code 1; anything else that is raised is a fault of ours.
"""


class TilecError(Exception):
    """Base of every error whose message is meant for the user."""


class CheckpointError(TilecError):
    """A model file or folder that is missing, damaged or contradicts itself."""


class UnsupportedError(TilecError):
    """Something well-formed that tilec does not implement; the message says what it does."""


class TargetError(TilecError):
    """A target that is unknown, or not present on this machine."""


class ContextLengthError(TilecError):
    """More tokens than the model's context or the artifact's cache holds."""


def shown(value: object) -> str:
    """`value` as a message shows what it got: its repr, shortened, because it may be a whole file's."""
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
