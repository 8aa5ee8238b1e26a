"""The deadline of an opening stands still while somebody signs in, and runs on after that."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from wharfinger.client.auth_deadline import Patient


class Person:
    """Signs in when told to."""

    def __init__(self) -> None:
        self.agrees = asyncio.Event()

    async def headers(self, url: str) -> Mapping[str, str]:
        return {"Authorization": url}

    async def refused(self, url: str, status: int, headers: Mapping[str, str], sent: Mapping[str, str]) -> bool:
        await self.agrees.wait()
        return True


def test_the_deadline_is_put_off_for_as_long_as_anybody_signs_in() -> None:
    async def test() -> None:
        person = Person()
        async with asyncio.timeout(10) as deadline:
            patient = Patient(person, deadline)
            assert await patient.headers("x") == {"Authorization": "x"}
            both = [asyncio.ensure_future(patient.refused("x", 401, {}, {})) for _ in range(2)]
            await asyncio.sleep(0)
            assert deadline.when() is None
            assert not patient.idle.is_set()
            person.agrees.set()
            assert await asyncio.gather(*both) == [True, True]
            assert patient.idle.is_set()
            when = deadline.when()
            assert when is not None
            assert 9 < when - asyncio.get_running_loop().time() <= 10

    asyncio.run(test())


def test_after_the_opening_there_is_no_deadline_to_put_off() -> None:
    async def test() -> None:
        person = Person()
        person.agrees.set()
        async with asyncio.timeout(10) as deadline:
            patient = Patient(person, deadline)
        patient.opened()
        assert await patient.refused("x", 401, {}, {})

    asyncio.run(test())
