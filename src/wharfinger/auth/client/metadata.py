"""The metadata documents of discovery: RFC 9728, and RFC 8414 with OpenID Connect."""

from __future__ import annotations

from typing import TypeVar

import msgspec

__all__ = ["AuthServerMetadata", "ResourceMetadata", "read_document"]

T = TypeVar("T")


class ResourceMetadata(msgspec.Struct, frozen=True):
    """The metadata of a protected resource (RFC 9728 §2)."""

    resource: str
    authorization_servers: tuple[str, ...] = ()
    scopes_supported: tuple[str, ...] | None = None


class AuthServerMetadata(msgspec.Struct, frozen=True, kw_only=True):
    """The metadata of an authorization server (RFC 8414 §2, RFC 9207 §3)."""

    issuer: str
    token_endpoint: str
    authorization_endpoint: str | None = None
    registration_endpoint: str | None = None
    scopes_supported: tuple[str, ...] | None = None
    grant_types_supported: tuple[str, ...] | None = None
    token_endpoint_auth_methods_supported: tuple[str, ...] | None = None
    token_endpoint_auth_signing_alg_values_supported: tuple[str, ...] | None = None
    code_challenge_methods_supported: tuple[str, ...] | None = None
    client_id_metadata_document_supported: bool | None = None
    authorization_response_iss_parameter_supported: bool | None = None

    @property
    def auth_methods(self) -> tuple[str, ...]:
        """How a client may authenticate at the token endpoint; by default `client_secret_basic` (RFC 8414)."""
        return self.token_endpoint_auth_methods_supported or ("client_secret_basic",)


def read_document(body: bytes, kind: type[T]) -> T | str:
    """Decode a document. If it is invalid, return the reason."""
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError as error:
        return f"it does not match the format: {error}"
    except (ValueError, RecursionError):  # not JSON, or not UTF-8
        return "it is not JSON" + (", but a web page" if body.lstrip()[:1] == b"<" else "")
