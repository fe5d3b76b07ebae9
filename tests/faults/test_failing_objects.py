"""The n-th request of a checkpoint on an object store fails, for every n: one is there, whole."""

from __future__ import annotations

from typing import Any, get_args

import numpy as np
import pytest

from mscam_dask.data.checkpoints import CURRENT, Checkpoint, ObjectCheckpointStore
from mscam_dask.data.datasets import subspace_mixture
from mscam_dask.data.store.object_store import ObjectPath
from mscam_dask.errors import StoreCorruptError, TemporaryFailure
from mscam_dask.estimators.mscam import MSCAM
from tests.faults.object_store import RESET, FailingObjects, How, MemoryObjects
from tests.messages import quotes

WHERE = ObjectPath("s3://bucket/runs/nightly-0123")


def state(number: int) -> Checkpoint:
    rng = np.random.default_rng(number)
    arrays = {"graph_data": rng.standard_normal(30), "best_labels": np.arange(9) + number}
    return Checkpoint(arrays, {"iteration": number})


def number_in(store: MemoryObjects) -> int | None:
    """Which state a store gives back, all of it of that state; None for none."""
    found = ObjectCheckpointStore(WHERE, objects=store).load()
    if found is None:
        return None
    expected = state(found.record["iteration"])
    assert found.arrays.keys() == expected.arrays.keys()
    for name, values in expected.arrays.items():
        assert found.arrays[name].tobytes() == values.tobytes()
    return int(found.record["iteration"])


@pytest.fixture(scope="module")
def stores() -> list[MemoryObjects]:
    """After 0, 1, 2 and 3 states were saved."""
    store, found = MemoryObjects(), [MemoryObjects()]
    checkpoints = ObjectCheckpointStore(WHERE, objects=store)
    for number in range(3):
        checkpoints.save(state(number))
        found.append(MemoryObjects(store.content))
    return found


def prefixes(store: MemoryObjects) -> set[str]:
    return {name.partition("/")[0] for name in store.content}


def requests_of_save(store: MemoryObjects, number: int) -> int:
    objects = FailingObjects(MemoryObjects(store.content), None)
    ObjectCheckpointStore(WHERE, objects=objects).save(state(number))
    return objects.done


def test_the_last_two_are_kept(stores: list[MemoryObjects]) -> None:
    for number, store in enumerate(stores[1:]):
        assert number_in(store) == number
        names = sorted(prefixes(store) - {CURRENT})
        assert [int(name[:8]) for name in names] == [number - 1, number][-len(names) :]
        assert len(names) == min(number + 1, 2)


@pytest.mark.faults
@pytest.mark.parametrize("saved", [0, 2])
@pytest.mark.parametrize("how", get_args(How))
def test_whatever_request_fails_the_last_or_the_one_before_is_there(
    stores: list[MemoryObjects], saved: int, how: How
) -> None:
    before = None if saved == 0 else saved - 1
    n_requests = requests_of_save(stores[saved], saved)
    assert n_requests > 15
    seen = set()
    for position in range(n_requests):
        store = MemoryObjects(stores[saved].content)
        writer = ObjectCheckpointStore(WHERE, objects=FailingObjects(store, position, how))
        try:
            writer.save(state(saved))
        except TemporaryFailure as error:
            assert RESET in str(error)  # noqa: PT017 - not every request raises
            assert number_in(store) in (before, saved)
        else:
            assert number_in(store) == saved  # what was cut off is the removal of the oldest
        seen.add(number_in(store))
        again = ObjectCheckpointStore(WHERE, objects=store)
        again.load()
        again.save(state(saved + 1))
        assert number_in(store) == saved + 1
        assert len(prefixes(store) - {CURRENT}) <= 2
    assert before in seen
    if saved == 2 or how == "done":  # the removal of the oldest comes after CURRENT
        assert saved in seen


@pytest.mark.faults
def test_the_same_writer_goes_on_after_a_request_without_an_answer(
    stores: list[MemoryObjects],
) -> None:
    for position in range(requests_of_save(stores[2], 2)):
        store = MemoryObjects(stores[2].content)
        writer = ObjectCheckpointStore(WHERE, objects=FailingObjects(store, position, "done"))
        for _ in range(2):
            try:
                writer.save(state(2))
            except TemporaryFailure:
                continue
        assert number_in(store) == 2


@pytest.mark.faults
@pytest.mark.parametrize("how", ["lost", "emptied", "cut short", "one bit"])
def test_damage_of_the_newest_is_named_and_the_one_before_taken(
    stores: list[MemoryObjects], how: str
) -> None:
    whole = stores[3]
    (newest,) = [name for name in prefixes(whole) if name.startswith("00000002")]
    files = [name for name in whole.content if name.startswith(newest) or name == CURRENT]
    for name in files:
        store = MemoryObjects(whole.content)
        content = bytearray(store.content.pop(name))
        if how == "one bit":
            content[len(content) // 2] ^= 4
        if how != "lost":
            kept = {"emptied": 0, "cut short": len(content) // 2}.get(how, len(content))
            store.content[name] = bytes(content[:kept])
        checkpoints = ObjectCheckpointStore(WHERE, objects=store)
        found = checkpoints.load()
        assert found is not None
        assert found.record["iteration"] == (2 if name == CURRENT else 1)
        assert any(str(WHERE / name) in said for said in checkpoints.damage), checkpoints.damage


def test_nothing_damaged_is_ever_taken(stores: list[MemoryObjects]) -> None:
    store = MemoryObjects(stores[3].content)
    for name in store.content:
        if name.endswith("state.json"):
            store.content[name] = store.content[name].replace(b"iteration", b"iterazion")
    with pytest.raises(StoreCorruptError, match=quotes("state.json", WHERE)):
        number_in(store)


def test_a_second_driver_is_noticed(stores: list[MemoryObjects]) -> None:
    store = MemoryObjects(stores[2].content)
    first, second = (ObjectCheckpointStore(WHERE, objects=store) for _ in range(2))
    assert first.load() is not None
    assert second.load() is not None
    second.save(state(2))
    before = dict(store.content)
    with pytest.raises(TemporaryFailure, match=quotes(WHERE)):
        first.save(state(2))
    assert store.content == before
    second.save(state(3))
    assert number_in(store) == 3


def test_clearing_leaves_nothing_and_cut_off_nothing_damaged(stores: list[MemoryObjects]) -> None:
    objects = FailingObjects(MemoryObjects(stores[3].content), None)
    ObjectCheckpointStore(WHERE, objects=objects).clear()
    for position in range(objects.done):
        store = MemoryObjects(stores[3].content)
        writer = ObjectCheckpointStore(WHERE, objects=FailingObjects(store, position, "half done"))
        with pytest.raises(OSError, match=RESET):
            writer.clear()
        assert number_in(store) in (None, 1, 2)
        ObjectCheckpointStore(WHERE, objects=store).clear()
        assert store.content == {}


@pytest.mark.faults
@pytest.mark.slow
def test_a_fit_killed_at_any_request_ends_with_the_same_bits() -> None:
    data = subspace_mixture(60, 3, (5, 8), rng=np.random.default_rng(0))

    def fitted(objects: MemoryObjects | FailingObjects) -> MSCAM:
        store = ObjectCheckpointStore(WHERE, objects=objects)
        model = MSCAM(n_clusters=3, auto_settings=False, max_iter=2, checkpoint_store=store)
        return model.fit(data)

    def bits(model: MSCAM) -> list[bytes]:
        graph = model.consensus_graph_
        arrays: list[Any] = [
            model.labels_,
            graph.data,
            graph.indices,
            *model.view_embeddings_.values(),
        ]
        return [array.tobytes() for array in arrays]

    counting = FailingObjects(MemoryObjects(), None)
    undisturbed = bits(fitted(counting))
    for position in range(counting.done):
        store = MemoryObjects()
        try:
            fitted(FailingObjects(store, position, "killed"))
        except (TemporaryFailure, OSError):
            assert bits(fitted(store)) == undisturbed
        else:  # it was removing the oldest
            assert position > counting.done - 30
