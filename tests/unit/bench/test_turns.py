from __future__ import annotations

import threading
import time

from updraft.bench.turns import Turns, schedule


def test_schedule_warms_up_and_then_goes_there_and_back() -> None:
    plan = schedule(("a", "b"), warm=1, blocks=2)
    assert "".join(name for name, _ in plan) == "ababbaabba"
    assert [measured for _, measured in plan] == [False] * 2 + [True] * 8


def test_queries_run_strictly_in_turns() -> None:
    turns = Turns(schedule(("a", "b"), warm=1, blocks=3))
    order: list[str] = []
    running = threading.Lock()
    pace_s = {"a": 0.002, "b": 0.02}

    def query(name: str) -> None:
        turns.done(name)  # its first batch, before anybody waits for anybody
        while not turns.over.is_set():
            assert running.acquire(blocking=False)  # nobody else has the machine
            order.append(name)
            time.sleep(pace_s[name])
            running.release()
            turns.done(name)

    threads = [threading.Thread(target=query, args=(name,)) for name in pace_s]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert "".join(order) == "ab" + 3 * "abba"
    assert not turns.unfinished
    assert [len(turns.seconds()[name]) for name in "ab"] == [6, 6]
    blocks = turns.blocks(4)
    assert len(blocks) == 3
    assert all(block["b"] > block["a"] for block in blocks)
