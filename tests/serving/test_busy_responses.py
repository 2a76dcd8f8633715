"""Overloaded requests get their 503 in order, later the more of them wait."""

import asyncio

from itemfold.serving.http.admission import busy_responses
from itemfold.serving.http.admission.busy_responses import BusyResponses


class Recorder:
    def __init__(self, name, sent):
        self.name, self.sent = name, sent

    def send_busy(self):
        self.sent.append(self.name)


def test_every_refusal_is_sent_once_and_in_order(monkeypatch):
    monkeypatch.setattr(busy_responses, "MIN_BUSY_DELAY_S", 0.0)
    monkeypatch.setattr(busy_responses, "MAX_BUSY_DELAY_S", 0.0)
    sent = []

    async def main():
        waiting = BusyResponses()
        for name in range(100):
            waiting.add(Recorder(name, sent))
        assert len(waiting) == 100
        assert not sent  # not before the next tick
        while waiting:
            await asyncio.sleep(busy_responses.TICK_S)
        waiting.add(Recorder("later", sent))  # the timer starts again
        while waiting:
            await asyncio.sleep(busy_responses.TICK_S)

    asyncio.run(main())
    assert sent == [*range(100), "later"]


def test_the_delay_grows_with_their_number_up_to_its_limit():
    async def main():
        waiting, start = BusyResponses(), asyncio.get_running_loop().time()
        for name in range(2 * busy_responses.BUSY_PER_SECOND):
            waiting.add(Recorder(name, []))
        return [due - start for due, _ in waiting._waiting]

    delays = asyncio.run(main())
    assert delays[0] >= busy_responses.MIN_BUSY_DELAY_S
    half = delays[busy_responses.BUSY_PER_SECOND // 2]
    assert half >= 0.5 > delays[0]
    assert delays[-1] >= busy_responses.MAX_BUSY_DELAY_S
    assert delays[-1] - delays[-100] < 0.5  # it grows no more
