import itertools
import threading
import time

import pytest

from unseen.targets.pace import Pace, Stopped


def test_so_many_at_once_and_no_more() -> None:
    pace, stop = Pace(2), threading.Event()
    under_way, most = [0], [0]
    lock = threading.Lock()

    def work() -> None:
        with pace.turn(stop):
            with lock:
                under_way[0] += 1
                most[0] = max(most[0], under_way[0])
            time.sleep(0.01)
            with lock:
                under_way[0] -= 1

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [2]


def test_so_many_a_minute_and_no_more() -> None:
    pace, begun = Pace(8, rpm=1200), []

    def work() -> None:
        with pace.turn(threading.Event()):
            begun.append(time.monotonic())
            time.sleep(0.12)  # others begin meanwhile

    threads = [threading.Thread(target=work) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(later - one >= 0.049 for one, later in itertools.pairwise(sorted(begun)))
    pace.slower(0.2)  # what the endpoint asks for is longer
    started = time.monotonic()
    with pace.turn(threading.Event()):
        pass
    assert time.monotonic() - started >= 0.2


def test_halves_and_grows_by_one_a_round() -> None:
    pace = Pace(8)
    pace.slower()
    pace.slower()
    assert pace.allowed == 2
    pace.faster()
    pace.faster()
    pace.faster()  # a round of two, and one of the next
    assert pace.allowed == 3
    for _ in range(100):
        pace.faster()
    assert pace.allowed == 8
    for _ in range(9):
        pace.slower()
    assert pace.allowed == 1


def test_nobody_begins_before_the_time() -> None:
    pace, stop = Pace(1), threading.Event()
    pace.slower(0.2)
    pace.slower()  # a later complaint does not shorten it
    started = time.monotonic()
    with pace.turn(stop):
        pass
    assert time.monotonic() - started >= 0.2


def test_who_is_stopped_does_not_wait() -> None:
    pace, stop = Pace(1), threading.Event()
    pace.slower(600)
    threading.Timer(0.05, stop.set).start()
    started = time.monotonic()
    with pytest.raises(Stopped), pace.turn(stop):
        pass
    assert time.monotonic() - started < 10
    stop.clear()
    with pytest.raises(ZeroDivisionError):
        raise_in(Pace(1), stop)


def raise_in(pace: Pace, stop: threading.Event) -> None:
    for _ in range(2):  # the place is free again
        with pace.turn(stop):
            1 / 0  # noqa: B018
