"""Items go to their thread in order, bounded; a thread that hangs costs those that find no room."""

import threading

from gateway.backlog import Backlog


def test_items_are_taken_in_order_and_all_of_them() -> None:
    taken: list[int] = []
    backlog = Backlog("taker", taken.extend, most=10_000, gather_s=0.001)
    assert all(backlog.put(number) for number in range(5000))
    assert backlog.flush(30)
    assert taken == list(range(5000))
    backlog.close()


def test_what_is_being_taken_and_what_waits_are_bounded_together() -> None:
    taken: list[str] = []
    begun, released = threading.Event(), threading.Event()

    def take(items: list[str]) -> None:
        begun.set()
        assert released.wait(30)
        taken.extend(items)

    backlog = Backlog("taker", take, most=10, gather_s=60)
    assert backlog.put("heavy", 6, urgent=True)
    assert begun.wait(30)
    assert backlog.put("light", 4)
    assert not backlog.put("one too many")
    assert not backlog.flush(0.001)
    released.set()
    assert backlog.flush(30)
    assert backlog.put("again")
    assert backlog.flush(30)
    assert taken == ["heavy", "light", "again"]
    backlog.close()


def test_an_urgent_item_brings_those_that_wait_with_it() -> None:
    taken = threading.Event()
    seen: list[str] = []

    def take(items: list[str]) -> None:
        seen.extend(items)
        taken.set()

    backlog = Backlog("taker", take, most=10, gather_s=3600)
    backlog.put("patient")
    backlog.put("urgent", urgent=True)
    assert taken.wait(30)
    assert seen == ["patient", "urgent"]
    backlog.close()


def test_the_thread_has_its_name_and_ends() -> None:
    names: list[str] = []
    backlog: Backlog[str] = Backlog(
        "taker", lambda _: names.append(threading.current_thread().name), most=10, gather_s=0
    )
    backlog.put("one")
    assert backlog.flush(30)
    thread = backlog._thread
    assert thread is not None
    backlog.close()
    thread.join(30)
    assert (thread.is_alive(), names) == (False, ["taker"])
