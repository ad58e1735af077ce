"""Whoever listens is told, until it leaves."""

from __future__ import annotations

from async_processor.listeners import Leave, Listeners, Subscriptions, all_of


def test_each_is_told_until_it_leaves_also_when_two_call_the_same() -> None:
    listeners, heard = Listeners[[str]](), list[str]()
    first, second = listeners.add(heard.append), listeners.add(heard.append)
    listeners.tell("a")
    first()
    first()
    listeners.tell("b")
    second()
    listeners.tell("c")
    assert (heard, len(listeners)) == (["a", "a", "b"], 0)


def test_who_leaves_or_joins_while_others_are_told_is_not_told() -> None:
    listeners, heard, leaves = Listeners[[]](), list[str](), list[Leave]()

    def first() -> None:
        heard.append("first")
        leaves[1]()
        listeners.add(lambda: heard.append("late"))

    leaves += [listeners.add(first), listeners.add(lambda: heard.append("second"))]
    listeners.tell()
    assert heard == ["first"]


def test_several_subscriptions_begin_and_end_together() -> None:
    one, other, heard = Listeners[[]](), Listeners[[]](), list[str]()
    together = Subscriptions(
        lambda: one.add(lambda: heard.append("one")), lambda: other.add(lambda: heard.append("two"))
    )
    for _ in range(2):
        together.join()
    one.tell()
    other.tell()
    for _ in range(2):
        together.leave()
    one.tell()
    together.join()
    other.tell()
    assert heard == ["one", "two", "two"]
    all_of([together.leave, one.add(other.tell)])()
    assert (len(one), len(other)) == (0, 0)
