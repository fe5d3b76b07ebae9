"""Events as JSON lines."""

from __future__ import annotations

import dataclasses
import datetime as dt
import io
import json
import math

from mscam_dask import MSCAM, Constants
from mscam_dask.monitor.events import JsonLines, StepFinished, StepStarted
from tests.monitor.records import ENDED
from tests.synthetic import two_subspaces


def test_one_line_for_each_event_with_its_name_time_and_fields() -> None:
    stream = io.BytesIO()
    write = JsonLines(stream)
    write(StepStarted(step="ingest"))
    write(StepFinished(step="ingest", summary="line\nbreak", notes=("é",), seconds=1.5))
    first, second = (json.loads(line) for line in stream.getvalue().splitlines())
    assert (first["event"], first["step"]) == ("step_started", "ingest")
    assert dt.datetime.fromisoformat(first["time"]).tzinfo is not None
    assert second["event"] == "step_finished"
    assert (second["summary"], second["notes"], second["seconds"]) == ("line\nbreak", ["é"], 1.5)


def test_it_is_a_callback_of_the_estimators_and_numbers_json_has_not_become_null() -> None:
    stream = io.BytesIO()
    model = MSCAM(
        n_clusters=2, constants=Constants.paper(), n_jobs=1, callbacks=[JsonLines(stream)]
    )
    model.fit(two_subspaces())
    JsonLines(stream)(dataclasses.replace(ENDED, seconds=math.nan, score=math.inf))
    *records, last = [json.loads(line) for line in stream.getvalue().splitlines()]
    kinds = [record["event"] for record in records]
    assert (kinds[0], kinds[-1]) == ("fit_started", "fit_finished")
    iterations = [record for record in records if record["event"] == "iteration_finished"]
    assert len(iterations) == model.n_iter_
    assert [view["view"] for view in iterations[0]["views"]] == ["view_0", "view_1"]
    assert (last["seconds"], last["score"]) == (None, None)
