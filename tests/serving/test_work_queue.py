"""The work queue: limits on waiting, and clients that disconnect."""

import asyncio
import threading
import time

import pytest
from fastapi.testclient import TestClient
from served import open_client
from starlette.exceptions import HTTPException
from starlette.requests import Request

from itemfold.serving.http import ServedRuns, ServiceSettings, create_app
from itemfold.serving.http.admission.work_queue import SINGLES_PER_SLICE, WorkQueue
from itemfold.serving.http.limits import Limits
from itemfold.serving.http.scope import PLACE


class Caller:
    """A client that waits for its answer until it leaves."""

    def __init__(self) -> None:
        self._left = asyncio.Event()
        self.request = Request({"type": "http"}, self._receive)

    def leave(self) -> None:
        self._left.set()

    async def _receive(self):
        await self._left.wait()
        return {"type": "http.disconnect"}


async def occupied(queue: WorkQueue) -> tuple[threading.Event, asyncio.Task]:
    """A queue whose only thread works until the event is set."""
    begun, release = threading.Event(), threading.Event()

    def work() -> str:
        begun.set()
        release.wait(30)
        return "first"

    task = asyncio.create_task(queue.run(Caller().request, work))
    await asyncio.to_thread(begun.wait, 30)
    return release, task


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def test_a_full_queue_rejects_at_once_and_works_again_later() -> None:
    async def main() -> None:
        queue = WorkQueue(1, Limits(max_waiting=2, max_wait_s=30))
        release, first = await occupied(queue)
        waiting = [asyncio.create_task(queue.run(Caller().request, lambda: 0)) for _ in range(2)]
        await settle()
        assert queue.is_full
        with pytest.raises(HTTPException) as refused:
            await queue.run(Caller().request, lambda: pytest.fail("it had no place"))
        assert refused.value.status_code == 503
        assert refused.value.headers == {"Retry-After": "1"}
        release.set()
        assert await first == "first"
        await asyncio.gather(*waiting)
        assert await queue.run(Caller().request, lambda: "later") == "later"
        assert queue.waiting == 0

    asyncio.run(main())


def test_no_request_waits_longer_than_the_limit() -> None:
    async def main() -> None:
        queue = WorkQueue(1, Limits(max_waiting=9, max_wait_s=0.01))
        release, first = await occupied(queue)
        with pytest.raises(HTTPException) as refused:
            await queue.run(Caller().request, lambda: pytest.fail("nobody waits for this"))
        assert refused.value.status_code == 503
        patient = asyncio.create_task(queue.run_slice(Caller().request, lambda: "part two"))
        await asyncio.sleep(0.05)
        release.set()
        assert (await first, await patient) == ("first", "part two")

    asyncio.run(main())


def test_a_client_that_goes_away_frees_its_place_and_costs_no_work() -> None:
    async def main() -> None:
        queue = WorkQueue(1, Limits(max_waiting=1, max_wait_s=30))
        release, first = await occupied(queue)
        gone = Caller()
        task = asyncio.create_task(queue.run(gone.request, lambda: pytest.fail("nobody waits")))
        await settle()
        assert queue.is_full
        gone.leave()
        with pytest.raises(HTTPException) as left:
            await task
        assert left.value.status_code == 499
        assert not queue.is_full
        next_one = asyncio.create_task(queue.run(Caller().request, lambda: "next"))
        await settle()
        release.set()
        assert (await first, await next_one) == ("first", "next")

    asyncio.run(main())


@pytest.mark.parametrize("late", range(6))
def test_a_request_that_is_cancelled_as_its_turn_comes_gives_it_back(late: int) -> None:
    async def main() -> None:
        queue = WorkQueue(1, Limits(max_waiting=9, max_wait_s=1))
        release, first = await occupied(queue)
        waiting = asyncio.create_task(queue.run(Caller().request, lambda: "second"))
        await settle()
        release.set()
        await first
        for _ in range(late):
            await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        assert await queue.run(Caller().request, lambda: "next") == "next"
        assert queue.waiting == 0

    asyncio.run(main())


def test_a_request_that_would_wait_too_long_is_rejected_before_it_waits() -> None:
    async def main() -> None:
        queue = WorkQueue(1, Limits(max_waiting=100, max_wait_s=0.5))
        for _ in range(3):
            await queue.run(Caller().request, lambda: time.sleep(0.2))
        release, first = await occupied(queue)
        tasks = []
        while not queue.is_full:
            tasks.append(asyncio.create_task(queue.run(Caller().request, lambda: "next")))
            await settle()
            assert len(tasks) < 100, "by the time that work takes, these wait for seconds"
        release.set()
        await asyncio.gather(first, *tasks, return_exceptions=True)

    asyncio.run(main())


def test_a_failing_request_does_not_keep_its_thread() -> None:
    async def main() -> None:
        queue = WorkQueue(threads=1)
        for _ in range(3):
            with pytest.raises(ZeroDivisionError):
                await queue.run(Caller().request, lambda: 1 / 0)
        assert await queue.run(Caller().request, lambda: "fine") == "fine"

    asyncio.run(main())


def test_an_overloaded_service_rejects_work_and_answers_probes(recommender) -> None:
    with open_client(recommender, limits=Limits(max_waiting=0)) as client:
        busy = client.post("/recommend", json={"history": [12]})  # nobody may wait
        assert (busy.status_code, busy.headers["retry-after"]) == (503, "1")
        assert busy.json()["error"].startswith("too many requests are waiting")
        for path in ("/livez", "/readyz", "/about", "/metrics", "/"):
            assert client.get(path).status_code == 200


def test_threads_go_on_while_the_event_loop_is_busy() -> None:
    async def main() -> None:
        queue, done = WorkQueue(1), threading.Event()
        release, first = await occupied(queue)
        works = [lambda: 1, lambda: 2, done.set]
        tasks = [asyncio.create_task(queue.run(Caller().request, work)) for work in works]
        await settle()
        release.set()
        assert done.wait(30)  # blocks the event loop until the last one is done
        assert await asyncio.gather(*tasks) == [1, 2, None]
        assert await first == "first"

    asyncio.run(main())


def test_a_closed_queue_leaves_no_thread_and_cancels_what_waits() -> None:
    async def main() -> None:
        before = set(threading.enumerate())
        queue = WorkQueue(2)
        threads = set(threading.enumerate()) - before
        assert len(threads) == 2
        release, first = await occupied(queue)
        second_release, second = await occupied(queue)
        waiting = asyncio.create_task(queue.run(Caller().request, lambda: pytest.fail("closed")))
        await settle()
        queue.close()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        release.set()
        second_release.set()
        assert await asyncio.gather(first, second) == ["first", "first"]
        for thread in threads:
            thread.join(30)
        assert not any(thread.is_alive() for thread in threads)

    asyncio.run(main())


def test_single_requests_come_before_slices_of_batches_which_still_get_turns() -> None:
    async def main() -> None:
        queue, order = WorkQueue(1, Limits(max_wait_s=60)), []
        release, first = await occupied(queue)
        slices = [
            asyncio.create_task(queue.run_slice(Caller().request, lambda: order.append("slice")))
            for _ in range(3)
        ]
        await settle()
        singles = [
            asyncio.create_task(queue.run(Caller().request, lambda: order.append("single")))
            for _ in range(2 * SINGLES_PER_SLICE)
        ]
        await settle()
        release.set()
        await asyncio.gather(first, *slices, *singles)
        block = ["single"] * SINGLES_PER_SLICE
        assert order == [*block, "slice", *block, "slice", "slice"]

    asyncio.run(main())


def test_batches_are_limited_by_their_users_and_leave_single_requests_alone() -> None:
    async def main() -> None:
        queue = WorkQueue(1, Limits(max_batch_users=100, max_waiting=1, max_wait_s=60))
        with queue.batch(5000):  # one batch is always accepted
            with pytest.raises(HTTPException) as refused, queue.batch(1):
                pytest.fail("there was no place")
            assert refused.value.status_code == 503
            assert not queue.is_full
            assert await queue.run(Caller().request, lambda: "single") == "single"
        with queue.batch(60), queue.batch(40):
            pass
        assert queue.batch_users == 0

    asyncio.run(main())


def test_requests_have_their_places_when_they_arrive() -> None:
    async def main() -> None:
        queue = WorkQueue(1, Limits(max_waiting=2))
        assert [queue.enter() for _ in range(5)] == [True, True, True, False, False]
        admitted = Caller().request
        admitted.scope[PLACE] = True
        assert await queue.run(admitted, lambda: "done") == "done"
        assert queue.places == 2  # its place is free again
        assert queue.enter()

    asyncio.run(main())


def test_a_request_with_a_place_is_answered_and_an_unused_place_is_given_back(recommender) -> None:
    settings = ServiceSettings(limits=Limits(max_waiting=1))
    app = create_app(ServedRuns({"run": recommender}), settings)
    app.state.queue.enter()  # with the next one, the queue is full

    async def arrive(scope, receive, send) -> None:
        """As the connection does for a complete request."""
        if scope["type"] == "http" and app.state.queue.enter():
            scope[PLACE] = True
        await app(scope, receive, send)

    with TestClient(arrive, base_url="http://localhost") as client:
        for body, statuses in (
            ({"history": [12]}, {200}),
            ({"history": 5}, {422}),
            ({"user": "nobody"}, {404, 422}),
        ):
            assert client.post("/recommend", json=body).status_code in statuses
            assert app.state.queue.places == 1
        evil = client.post("/recommend", json={"history": [12]}, headers={"Host": "evil.example"})
        assert evil.status_code == 421
    assert app.state.queue.places == 1


def test_a_batch_is_answered_in_slices_like_single_requests(recommender, monkeypatch) -> None:
    slices, run_slice = [], WorkQueue.run_slice

    async def counted(self, request, work):
        slices.append(1)
        return await run_slice(self, request, work)

    monkeypatch.setattr(WorkQueue, "run_slice", counted)
    monkeypatch.setattr("itemfold.serving.http.api.routes.SLICE_S", 1e-9)  # one user in each
    users = recommender.run.user_ids.ids.tolist()[:7]
    with open_client(recommender) as client:
        together = client.post("/recommend/batch", json={"users": users, "k": 3}).json()
        alone = [client.post("/recommend", json={"user": u, "k": 3}).json() for u in users]
    assert together == alone
    assert len(slices) == 7
