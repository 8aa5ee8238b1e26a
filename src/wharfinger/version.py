"""The version of the package, for whoever says what it is."""

__version__ = "0.1.0"
"""The version of the package (Semantic Versioning)."""
