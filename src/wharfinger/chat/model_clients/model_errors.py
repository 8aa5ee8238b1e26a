"""Errors of the endpoints of models. Their messages say what to change, and never contain a key."""

from __future__ import annotations

from wharfinger.errors import WharfingerError

__all__ = ["ModelError", "ModelNotAuthorized", "ModelNotChosen", "ModelUnreachable"]


class ModelError(WharfingerError):
    """The endpoint of a model refused a request, or its answer is invalid."""

    remote = True


class ModelNotChosen(ModelError):
    """No model was chosen, its name is not valid, or its key or URL is missing or not valid."""

    exit_code = 2
    remote = False


class ModelUnreachable(ModelError):
    """The endpoint of a model cannot be reached, or did not answer in time."""

    exit_code = 3


class ModelNotAuthorized(ModelError):
    """The endpoint of a model refused the key."""

    exit_code = 4
