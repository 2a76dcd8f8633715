"""Refused requests get their 503 in order, later the more of them wait."""

import asyncio

from itemfold.serving.http.admission import refusals
from itemfold.serving.http.admission.refusals import Refusals


class Recorder:
    def __init__(self, name, sent):
        self.name, self.sent = name, sent

    def send_busy(self):
        self.sent.append(self.name)


def test_every_refusal_is_sent_once_and_in_order(monkeypatch):
    monkeypatch.setattr(refusals, "MIN_BUSY_DELAY_S", 0.0)
    monkeypatch.setattr(refusals, "MAX_BUSY_DELAY_S", 0.0)
    sent = []

    async def main():
        waiting = Refusals()
        for name in range(100):
            waiting.add(Recorder(name, sent))
        assert len(waiting) == 100
        assert not sent  # not before the next tick
        while waiting:
            await asyncio.sleep(refusals.TICK_S)
        waiting.add(Recorder("later", sent))  # the timer starts again
        while waiting:
            await asyncio.sleep(refusals.TICK_S)

    asyncio.run(main())
    assert sent == [*range(100), "later"]


def test_the_delay_grows_with_their_number_up_to_its_limit():
    async def main():
        waiting, start = Refusals(), asyncio.get_running_loop().time()
        for name in range(2 * refusals.BUSY_PER_SECOND):
            waiting.add(Recorder(name, []))
        return [due - start for due, _ in waiting._waiting]

    delays = asyncio.run(main())
    assert delays[0] >= refusals.MIN_BUSY_DELAY_S
    half = delays[refusals.BUSY_PER_SECOND // 2]
    assert half >= 0.5 > delays[0]
    assert delays[-1] >= refusals.MAX_BUSY_DELAY_S
    assert delays[-1] - delays[-100] < 0.5  # it grows no more
