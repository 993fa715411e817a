"""A reflector at work, and the types of the fixtures that start such things."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event, Thread

from driver.kube.client import Client
from driver.kube.reflector import Reflector

Connect = Callable[..., Client]


class Running:
    """A reflector in a thread, as the supervisor runs it."""

    def __init__(self, reflector: Reflector) -> None:
        self.reflector = reflector
        self.stop = Event()
        self.thread = Thread(target=reflector.run, args=(self.stop,), daemon=True)
        self.thread.start()

    def end(self) -> None:
        self.stop.set()
        self.thread.join(5)
        assert not self.thread.is_alive(), "the reflector did not stop"


Run = Callable[[Reflector], Running]
