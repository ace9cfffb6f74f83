"""Event files of prism/report read by the `tensorboard` package."""

import json
import math
import struct

import pytest
from program import run_tool

pytest.importorskip("tensorboard")
from tensorboard.backend.event_processing import plugin_event_accumulator  # noqa: E402
from tensorboard.backend.event_processing.event_file_loader import RawEventFileLoader  # noqa: E402
from tensorboard.compat.proto.event_pb2 import Event  # noqa: E402


def write(folder, first_step, lines):
    text = "".join(json.dumps(line) + "\n" for line in lines)
    result = run_tool("report/report_tool", "events", folder, first_step, input=text)
    assert result.returncode == 0, result.stderr


def accumulated(folder):
    everything = plugin_event_accumulator.STORE_EVERYTHING_SIZE_GUIDANCE
    accumulator = plugin_event_accumulator.EventAccumulator(str(folder), size_guidance=everything)
    accumulator.Reload()
    return accumulator


def scalar_points(accumulator, tag):
    return [(event.step, event.tensor_proto.float_val[0]) for event in accumulator.Tensors(tag)]


def float32(value):
    return struct.unpack("<f", struct.pack("<f", value))[0]


def test_scalars_come_back_with_their_steps(tmp_path):
    losses = {step: 10.0 / step for step in range(1, 301)}
    write(tmp_path, 1, [{"step": s, "scalars": {"train/loss": v, "train/lr": 0.02}} for s, v in losses.items()])
    read = accumulated(tmp_path)
    assert scalar_points(read, "train/loss") == [(s, float32(v)) for s, v in losses.items()]
    assert scalar_points(read, "train/lr") == [(s, float32(0.02)) for s in losses]
    assert read.SummaryMetadata("train/loss").plugin_data.plugin_name == "scalars"


def test_extreme_values_and_steps_come_back(tmp_path):
    points = [(0, 0.0), (1, -1e-30), (2**40, 3e38), (2**62, 1e39)]
    write(tmp_path, 0, [{"step": s, "scalars": {"größe/名": v}} for s, v in points] + [{"step": 2**62 + 1, "scalars": {"größe/名": None}}])
    read = scalar_points(accumulated(tmp_path), "größe/名")
    assert read[:-2] == [(s, float32(v)) for s, v in points[:-1]]
    assert read[-2] == (2**62, math.inf) and math.isnan(read[-1][1])


def test_text_comes_back_as_text(tmp_path):
    text = "# Run\n\n| a | b |\n|---|---|\n| 1 | ü 名 |\n" + "x" * 100_000
    write(tmp_path, 0, [{"step": 7, "tag": "config", "text": text}])
    read = accumulated(tmp_path)
    (event,) = read.Tensors("config")
    assert event.step == 7 and event.tensor_proto.string_val[0].decode() == text
    assert [d.size for d in event.tensor_proto.tensor_shape.dim] == [1]
    assert read.SummaryMetadata("config").plugin_data.plugin_name == "text"


def test_a_resumed_run_replaces_what_came_after_its_first_step(tmp_path):
    write(tmp_path, 1, [{"step": s, "scalars": {"loss": 1.0, "val": 5.0}} for s in range(1, 101)])
    write(tmp_path, 61, [{"step": s, "scalars": {"loss": 2.0}} for s in range(61, 81)])
    write(tmp_path, 71, [{"step": s, "scalars": {"loss": 3.0}} for s in range(71, 91)])
    read = accumulated(tmp_path)
    expected = [(s, 1.0) for s in range(1, 61)] + [(s, 2.0) for s in range(61, 71)] + [(s, 3.0) for s in range(71, 91)]
    assert scalar_points(read, "loss") == expected
    assert scalar_points(read, "val") == [(s, 5.0) for s in range(1, 61)]


@pytest.mark.parametrize("cut", [1, 4, 11, 30])
def test_an_unfinished_record_hides_nothing_before_it_and_nothing_after_resuming(tmp_path, cut):
    write(tmp_path, 1, [{"step": s, "scalars": {"loss": 1.0}} for s in range(1, 11)])
    (file,) = tmp_path.iterdir()
    file.write_bytes(file.read_bytes()[:-cut])
    assert [s for s, _ in scalar_points(accumulated(tmp_path), "loss")] == list(range(1, 10))
    write(tmp_path, 10, [{"step": 10, "scalars": {"loss": 2.0}}])
    assert scalar_points(accumulated(tmp_path), "loss")[-2:] == [(9, 1.0), (10, 2.0)]


def test_every_field_of_an_event_is_known(tmp_path):
    """The field numbers and types are the schema's: encoding again gives the same bytes, unknown fields aside."""
    write(tmp_path, 3, [{"step": 3, "scalars": {"a": 1.5, "b": 2.5}}, {"step": 4, "tag": "t", "text": "word"}])
    (file,) = tmp_path.iterdir()
    events = [Event.FromString(data) for data in RawEventFileLoader(str(file)).Load()]
    assert [event.WhichOneof("what") for event in events] == ["file_version", "session_log", "summary", "summary"]
    assert events[0].file_version == "brain.Event:2"
    assert events[1].step == 3 and events[1].session_log.status == 1
    assert [(v.tag, v.simple_value) for v in events[2].summary.value] == [("a", 1.5), ("b", 2.5)]
    assert abs(events[3].wall_time - file.stat().st_mtime) < 60
    for event in events:
        size = event.ByteSize()
        event.DiscardUnknownFields()
        assert event.ByteSize() == size
