"""Parses untrusted XML without entities, document types and the network. Runs in the child process.

libxml2 itself limits the depth of elements (256), the length of texts, and how far entities may grow.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

__all__ = ["NotXML", "parse_xml"]

_etree: Any = import_module("lxml.etree")

NotXML: type[SyntaxError] = _etree.XMLSyntaxError
"""The error for XML that is not well-formed."""


def parse_xml(data: bytes) -> Any:
    """Return the root element.

    Raises:
        NotXML: it is not well-formed, for example because it is empty.
    """
    return _etree.fromstring(data, _etree.XMLParser(resolve_entities=False, no_network=True, load_dtd=False))
