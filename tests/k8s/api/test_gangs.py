"""Which scheduler of gangs a cluster has, queried seldom and by many jobs at once; the API server is a function here."""

from __future__ import annotations

import asyncio

import httpx2
import pytest

from sporax.k8s.api.cluster import KubernetesCluster
from sporax.k8s.decide.observed import Gang


class Server:
    """A client whose lists are answered late, with one kind of pod group or none."""

    def __init__(self, known: str, faults: list[int]) -> None:
        self.known, self.faults, self.queries = known, faults, 0

    async def list(self, resource, namespace, chunk_size):
        self.queries += 1
        await asyncio.sleep(0)
        code = self.faults.pop(0) if self.faults else 404 * (resource._api_info.resource.group != self.known)
        if code:
            request = httpx2.Request("GET", "http://server")
            raise httpx2.HTTPStatusError("refused", request=request, response=httpx2.Response(code, request=request))
        yield {}


@pytest.mark.parametrize(("group", "gang"), [
    ("scheduling.volcano.sh", Gang.VOLCANO), ("scheduling.x-k8s.io", Gang.COSCHEDULING), ("none", None),
])  # fmt: skip
def test_jobs_that_query_while_another_one_waits_for_the_answer_get_it_too(group, gang):
    server = Server(group, [])
    cluster = KubernetesCluster(server)

    async def query():
        together = await asyncio.gather(*[cluster.find_gang() for _ in range(3)])
        queries = server.queries
        return [*together, await cluster.find_gang()], server.queries - queries

    assert asyncio.run(query()) == ([gang] * 4, 0)


def test_a_query_that_failed_is_repeated():
    cluster = KubernetesCluster(Server("scheduling.volcano.sh", [500]))

    async def query():
        with pytest.raises(httpx2.HTTPStatusError):
            await cluster.find_gang()
        return await cluster.find_gang()

    assert asyncio.run(query()) is Gang.VOLCANO
