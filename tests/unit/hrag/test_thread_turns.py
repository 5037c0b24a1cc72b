"""Threads take turns often while something computes for long, and as usual otherwise."""

import sys
import threading

import pytest

from hrag.thread_turns import computing_for_long


def test_turns_are_frequent_until_the_last_long_computation_ends() -> None:
    usual_s = sys.getswitchinterval()
    with computing_for_long():
        often_s = sys.getswitchinterval()
        with computing_for_long():
            pass
        assert sys.getswitchinterval() == often_s < usual_s
    assert sys.getswitchinterval() == usual_s


def test_an_error_ends_a_long_computation() -> None:
    usual_s = sys.getswitchinterval()
    with pytest.raises(ZeroDivisionError), computing_for_long():
        _ = 1 // 0
    assert sys.getswitchinterval() == usual_s


def test_many_threads_leave_the_usual_interval() -> None:
    usual_s = sys.getswitchinterval()

    def compute() -> None:
        for _ in range(200):
            with computing_for_long():
                pass

    threads = [threading.Thread(target=compute) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sys.getswitchinterval() == usual_s
