"""Narrows the types of decoded JSON, for code that reads what others have written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeGuard

__all__ = ["as_list", "as_object", "is_list", "is_mapping", "is_object"]


def is_object(value: Any) -> TypeGuard[dict[str, Any]]:
    """Return whether a value is a JSON object."""
    return isinstance(value, dict)


def is_mapping(value: Any) -> TypeGuard[Mapping[str, Any]]:
    """Return whether a value becomes a JSON object, such as a read-only mapping that an application passes."""
    return isinstance(value, Mapping)


def is_list(value: Any) -> TypeGuard[list[Any]]:
    """Return whether a value is a JSON array."""
    return isinstance(value, list)


def as_object(value: Any) -> dict[str, Any]:
    """Return a value if it is a JSON object, and otherwise an empty one."""
    return value if is_object(value) else {}


def as_list(value: Any) -> list[Any]:
    """Return a value if it is a JSON array, and otherwise an empty one."""
    return value if is_list(value) else []
