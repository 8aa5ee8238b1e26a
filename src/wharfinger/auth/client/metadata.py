"""The documents of discovery as structs: RFC 9728, RFC 8414 with OpenID Connect's; knows not where they come from."""

from __future__ import annotations

from typing import TypeVar

import msgspec

__all__ = ["ResourceMetadata", "ServerMetadata", "read_document"]

T = TypeVar("T")


class ResourceMetadata(msgspec.Struct, frozen=True):
    """What a protected resource says of itself (RFC 9728 §2)."""

    resource: str
    authorization_servers: tuple[str, ...] = ()
    scopes_supported: tuple[str, ...] | None = None


class ServerMetadata(msgspec.Struct, frozen=True, kw_only=True):
    """What an authorization server says of itself (RFC 8414 §2, RFC 9207 §3)."""

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
        """How a client may prove at the token endpoint who it is; unsaid, it is `client_secret_basic` (RFC 8414)."""
        return self.token_endpoint_auth_methods_supported or ("client_secret_basic",)


def read_document(body: bytes, kind: type[T]) -> T | str:
    """A document, or in a few words what is wrong with it."""
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError as error:
        return f"it breaks its format: {error}"
    except (msgspec.DecodeError, RecursionError):
        return "it is no JSON" + (", but a web page" if body.lstrip()[:1] == b"<" else "")
