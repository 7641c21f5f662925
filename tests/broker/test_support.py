"""What tests of a broker rely on."""

import shutil
from pathlib import Path
from threading import Event, Thread

from tests.broker.support import copy_of_running


def test_a_copy_of_a_running_store_is_of_one_moment(tmp_path: Path) -> None:
    """D11: queues are saved before what says how far they are, so no kill leaves it the other way round, and no copy may."""
    own, over = tmp_path / "store" / "rmq", Event()
    own.mkdir(parents=True)

    def save(number: int) -> None:
        for name in "queues", "progress":
            (own / f"{name}.new").write_text(str(number))
            (own / f"{name}.new").rename(own / name)

    def save_again_and_again() -> None:
        number = 0
        while not over.wait(0.0002):
            save(number := number + 1)

    save(0)
    saver = Thread(target=save_again_and_again)
    saver.start()
    try:
        for _ in range(300):
            copy = copy_of_running(tmp_path / "store", tmp_path / "copy")
            said = {name: int((copy / "rmq" / name).read_text()) for name in ("queues", "progress")}
            assert said["queues"] >= said["progress"]
            shutil.rmtree(copy)
    finally:
        over.set()
        saver.join()
