"""`ServerPolicy`: loads and replaces the policy of a server.

A policy may be a file that is read again when it changes. A rule may name directories of this machine in `roots`.
They are bound: replaced by patterns of the URIs at which the sources publish these directories. The server must trust
each issuer that a rule names. `AccessControl` then enforces the policy.
"""

from __future__ import annotations

import asyncio
import copy
import logging
import os
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING
from weakref import WeakSet

from wharfinger.errors import WharfingerError
from wharfinger.protocol.interfaces import Authorizer, Store

if TYPE_CHECKING:
    from wharfinger.auth.server.token_auth import TokenAuth
    from wharfinger.auth.server.token_verifier import TokenVerifier
    from wharfinger.policy.policy import Policy
    from wharfinger.server.features.resources import Resources
    from wharfinger.server.policy_file import PolicyFile
    from wharfinger.server.services import Services

__all__ = ["ServerPolicy", "rules_of"]

log = logging.getLogger("wharfinger.server.policy")

CHECK_INTERVAL_SECONDS = 1.0
"""Time between two checks of the file of a policy."""


class ServerPolicy:
    """The policy of one server. `enforce` is called with the policy to enforce, after its `roots` are bound."""

    def __init__(self, services: Services, resources: Resources, enforce: Callable[[Authorizer | None], None]) -> None:
        self._services = services
        self._resources = resources
        self._enforce = enforce
        self._unbound: Authorizer | None = None
        """The policy before its `roots` are bound to the sources."""
        self._file: PolicyFile | None = None
        self._auths: WeakSet[TokenAuth] = WeakSet()
        self._server_runs = False

    @property
    def has_file(self) -> bool:
        """Whether the policy is in a file."""
        return self._file is not None

    def set(self, policy: Authorizer | PolicyFile | str | os.PathLike[str] | None) -> None:
        """Enforce another policy from the next request on; None removes the policy.

        A path is read now; a `PolicyFile` was read when it was created. While the server runs, both are read again
        whenever the file changes.

        Raises:
            UnusablePolicy: the policy cannot be used, does not fit the issuers that the server trusts, or fails one of
                its tests. Tests that need the sources run now only if the server runs. The old policy stays.
        """
        from wharfinger.server.policy_file import PolicyFile  # only servers with a policy need it

        policy = PolicyFile(policy) if isinstance(policy, (str, os.PathLike)) else policy
        if isinstance(policy, PolicyFile):
            self._replace(policy.authorizer(policy.policy), test=self._server_runs)
            self._file = copy.copy(policy)  # it notes which version it read last, and two servers may get the same one
        else:
            self._replace(policy, test=self._server_runs)
            self._file = None

    def _replace(self, authorizer: Authorizer | None, *, test: bool = True) -> None:
        """Enforce another policy. If it cannot be used, or with `test` fails one of its tests, raise UnusablePolicy."""
        for auth in self._auths:
            _check_issuers(authorizer, auth)
        bound = self._bind(authorizer)
        if test:
            _require_tests(bound)
        self._unbound = authorizer
        self._enforce_if_changed(bound)
        for auth in self._auths:
            auth.forget()

    def bind_roots(self) -> None:
        """Find the published resources of the directories in `roots`. Call this again when a source is added.

        While the server runs, a test of the policy that fails then is logged. The policy is enforced all the same: the
        old one has no patterns for the new source, so its denials would not apply there.
        """
        self._enforce_if_changed(self._bind(self._unbound))
        if self._server_runs:
            try:
                self.check_tests()
            except WharfingerError as error:
                log.error("A test of the policy fails since the sources have changed. %s", error)

    def _enforce_if_changed(self, authorizer: Authorizer | None) -> None:
        if authorizer is not self._services.authorizer:
            self._enforce(authorizer)

    def _bind(self, authorizer: Authorizer | None) -> Authorizer | None:
        """Return the policy with the published resources of the directories in `roots`."""
        rules = rules_of(authorizer)
        if rules is None or not rules.has_roots:
            return authorizer
        from wharfinger.policy import ReportOnly
        from wharfinger.server.published_roots import patterns_in

        rules = rules.bind_roots(lambda directory: patterns_in(directory, self._resources.every_source()))
        return ReportOnly(rules) if isinstance(authorizer, ReportOnly) else rules

    def check_tests(self) -> None:
        """Run the tests of the policy. If a rule has `roots`, their results depend on the sources.

        Raises:
            UnusablePolicy: a test fails.
        """
        _require_tests(self._services.authorizer)

    def bind_auth(
        self, auth: TokenAuth | TokenVerifier | Sequence[TokenVerifier] | None, store: Store | None = None
    ) -> TokenAuth | None:
        """Return `auth` as a `TokenAuth`; None if it is None. When the policy changes, it verifies all tokens again.

        Checks first that the policy fits the issuers. `store` keeps the ids of used DPoP proofs, unless `auth` is a
        `TokenAuth`, which has its own.

        Raises:
            UnusablePolicy: a rule or limit names another issuer, or depends on a token's claims and names none,
                although there are several.
        """
        if auth is None:
            return None
        from wharfinger.auth.server.token_auth import as_token_auth

        checked = as_token_auth(auth, store)
        _check_issuers(self._unbound, checked)
        self._auths.add(checked)
        return checked

    @asynccontextmanager
    async def following(self) -> AsyncGenerator[None]:
        """In an `async with` block, read the file of the policy again whenever it changes.

        Raises:
            UnusablePolicy: a test of the policy fails.
        """
        self.check_tests()
        self._server_runs = True
        task = asyncio.create_task(self._follow())
        try:
            yield
        finally:
            task.cancel()
            self._server_runs = False

    async def _follow(self) -> None:
        while True:
            await asyncio.sleep(CHECK_INTERVAL_SECONDS)
            if self._file is not None and self._file.has_changed():
                await self.reload()

    async def reload(self) -> None:
        """Read the file of the policy again. If it cannot be used, the error is logged and the old policy stays."""
        file = self._file
        if file is None:
            return

        def replace(authorizer: Authorizer) -> bool:
            if self._file is not file:  # another policy was set while the file was being read
                return False
            self._replace(authorizer)
            return True

        await file.reload(replace)


def rules_of(authorizer: Authorizer | None) -> Policy | None:
    """Return the `Policy` of an authorizer, also if it only reports refusals; None for any other authorizer."""
    if authorizer is None:
        return None
    from wharfinger.policy import Policy, ReportOnly

    rules = authorizer.policy if isinstance(authorizer, ReportOnly) else authorizer
    return rules if isinstance(rules, Policy) else None


def _require_tests(authorizer: Authorizer | None) -> None:
    rules = rules_of(authorizer)
    if rules is not None:
        rules.require_tests()


def _check_issuers(authorizer: Authorizer | None, auth: TokenAuth) -> None:
    rules = rules_of(authorizer)
    if rules is not None:
        rules.check_issuers(auth.rule_issuers)
