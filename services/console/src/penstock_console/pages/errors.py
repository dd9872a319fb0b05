"""Errors of pages beyond those that all of Penstock has."""

from penstock.contracts.errors import Invalid


class NotFound(Invalid):
    """There is no such topic, group or page."""


class Forbidden(Invalid):
    """The user may not do this, or changes are not switched on."""
