"""Reading by several threads: the same weights in any order, bounded, and no thread left behind."""

import os
import random
import signal
import threading
from dataclasses import dataclass, field

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rose.config import ModelConfig
from rose.core.mapping import ParallelMapping
from rose.models import streaming as streaming_module
from rose.models.checkpoint import CheckpointError, StoredRows, StoredTensor
from rose.models.gpt_oss import GptOss
from rose.models.layouts import WeightSource
from rose.models.placement import placements
from rose.models.streaming import Placement, Source, Streaming, stream
from rose.models.weights import load_weights
from rose.quant import quant_scheme
from tests.models.checkpoint_layouts import (
    RAGGED,
    SMALL,
    make_config,
    random_tensors,
    write_float,
    write_folder,
    write_openai,
    write_published,
)

CPU = torch.device("cpu")


def make_model(config, scheme="mxfp4"):
    return GptOss(
        config,
        scheme=quant_scheme(scheme),
        mapping=ParallelMapping(),
        dtype=torch.bfloat16,
        device=CPU,
    )


def load(folder, streaming, scheme="mxfp4"):
    config = ModelConfig.load(folder)
    model = make_model(config, scheme)
    for parameter in model.parameters():
        parameter.data.view(torch.uint8).fill_(0xFF)
    load_weights(model, WeightSource(folder, config), config, streaming)
    return model


def same(model, other):
    pairs = zip(model.state_dict().items(), other.state_dict().items(), strict=True)
    return all(
        name == theirs and torch.equal(ours.view(torch.uint8), value.view(torch.uint8))
        for (name, ours), (theirs, value) in pairs
    )


def loaders():
    return [thread for thread in threading.enumerate() if thread.name.startswith("rose-load")]


@pytest.fixture(autouse=True)
def no_thread_is_left():
    yield
    for thread in loaders():
        # An interrupt in the very moment of its start can leave it a last breath.
        thread.join(60)
    assert not loaders()


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("streaming")
    write_published(root / "published", RAGGED, shards=3)
    write_openai(root / "openai", RAGGED, shards=2)
    write_float(root / "float", RAGGED)
    return root


@pytest.fixture(scope="module")
def plain(folders):
    """Loaded by one thread, in order, every tensor whole; by layout."""
    whole = Streaming(threads=1, buffers=1, piece_bytes=1 << 30)
    return {folder.name: load(folder, whole) for folder in folders.iterdir()}


@settings(max_examples=12, deadline=None)
@given(
    layout=st.sampled_from(["published", "openai", "float"]),
    threads=st.integers(1, 6),
    buffers=st.integers(1, 5),
    piece_bytes=st.sampled_from([1, 3_000, 100_000, 1 << 30]),
)
def test_every_way_of_reading_gives_the_same_bytes(
    folders, plain, layout, threads, buffers, piece_bytes
):
    model = load(folders / layout, Streaming(threads, buffers, piece_bytes))
    assert same(model, plain[layout])


@pytest.mark.parametrize("seed", range(3))
def test_pieces_may_come_in_any_order(folders, plain, seed):
    folder = folders / "published"
    config = ModelConfig.load(folder)
    model = make_model(config)
    pieces = placements(model, WeightSource(folder, config), config, 10_000)
    random.Random(seed).shuffle(pieces)
    seen = []
    with torch.no_grad():
        stream(pieces, CPU, Streaming(4, 3, 10_000), lambda piece, _: seen.append(piece))
    assert sorted(map(id, seen)) == sorted(map(id, pieces))
    assert same(model, plain["published"])


@pytest.mark.parametrize("piece_bytes", [1, 5_000, 1 << 30])
def test_the_plan_reads_every_byte_once(folders, piece_bytes):
    folder = folders / "openai"
    config = ModelConfig.load(folder)
    source = WeightSource(folder, config)
    pieces = placements(make_model(config), source, config, piece_bytes)
    rows = [part.rows for piece in pieces for part in piece.sources]
    read = sorted((r.tensor.file, r.offset, r.offset + r.nbytes) for r in rows)
    stored = sorted(
        (t.file, t.offset, t.offset + t.nbytes) for t in source.checkpoint.tensors.values()
    )
    assert merged(read) == merged(stored)
    assert sum(r.nbytes for r in rows) == source.nbytes


def merged(spans):
    """Spans (file, start, stop) with neighbours joined."""
    result = []
    for file, start, stop in spans:
        if result and result[-1][0] == file and result[-1][2] == start:
            result[-1] = (file, result[-1][1], stop)
        else:
            result.append((file, start, stop))
    return result


def test_cut_pieces_keep_to_the_limit(folders):
    folder = folders / "published"
    config = ModelConfig.load(folder)
    limit = 200_000  # more than queries, keys and values of a layer
    pieces = placements(make_model(config), WeightSource(folder, config), config, limit)
    assert max(piece.nbytes for piece in pieces) <= limit
    assert all(
        pieces[i].sources[0].rows.tensor.file.name <= pieces[i + 1].sources[0].rows.tensor.file.name
        for i in range(len(pieces) - 1)
    )


@dataclass
class Ring:
    """Counts buffers that are read but not yet placed."""

    held: int = 0
    most: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def change(self, by):
        with self.lock:
            self.held += by
            self.most = max(self.most, self.held)


@dataclass(frozen=True)
class FakeRows:
    """Eight bytes that come from a function, as StoredRows would from a file."""

    read: object
    nbytes: int = 8
    dtype: torch.dtype = torch.uint8
    shape: tuple[int, ...] = (8,)

    def read_into(self, out):
        self.read(out)


def piece(read, place=lambda tensors: None, name="a.tensor"):
    return Placement((Source(name, FakeRows(read)),), place)


@pytest.mark.parametrize("buffers", [1, 2, 4])
def test_no_more_than_the_ring_is_under_way(buffers):
    ring = Ring()

    def read(out):
        ring.change(+1)
        out[:] = b"12345678"

    def placed(tensors):
        assert bytes(tensors[0].numpy()) == b"12345678"
        ring.change(-1)

    pieces = [piece(read, placed) for _ in range(50)]
    stream(pieces, CPU, Streaming(6, buffers, 256), lambda *_: None)
    assert ring.held == 0
    assert ring.most <= buffers


def test_one_large_matrix_does_not_make_every_buffer_large(monkeypatch):
    """A head that must stay whole takes a gigabyte; sixteen such buffers would not fit a host."""
    made = []

    def make_buffers(placements, device, streaming):
        made.append((max(p.buffer_bytes for p in placements), streaming.buffers))
        return buffers_of(placements, device, streaming)

    buffers_of = streaming_module._make_buffers
    monkeypatch.setattr(streaming_module, "_make_buffers", make_buffers)
    large = Placement(
        (Source("head", FakeRows(len, nbytes=5 * 256, shape=(5 * 256,))),), lambda tensors: None
    )
    seen = []
    pieces = [piece(len), large, piece(len)]
    stream(pieces, CPU, Streaming(3, 4, 256), lambda each, _: seen.append(each is large))
    assert made == [(256, 4), (5 * 256, 1)]
    assert seen == [False, False, True]


def test_an_empty_plan():
    stream([], CPU, Streaming(2, 2, 256), lambda *_: None)


def test_a_reader_that_fails_names_the_tensor_and_stops_the_others():
    def fail(out):
        raise CheckpointError("cannot read it")

    started = []
    pieces = [piece(started.append) for _ in range(3)] + [piece(fail, name="model.norm.weight")]
    pieces += [piece(started.append) for _ in range(1000)]
    with pytest.raises(CheckpointError, match=r"cannot read it \(tensor model.norm.weight\)"):
        stream(pieces, CPU, Streaming(3, 3, 256), lambda *_: None)
    assert len(started) < 1003


def test_a_shard_that_shrinks_during_the_load(tmp_path):
    folder = write_published(tmp_path, SMALL)
    config = ModelConfig.load(folder)
    source = WeightSource(folder, config)
    [shard] = source.checkpoint.shards
    last = max(source.checkpoint.tensors.items(), key=lambda item: item[1].offset)
    with shard.open("r+b") as file:
        file.truncate(last[1].offset + 2)
    with pytest.raises(CheckpointError, match=rf"shrank while it was read: .*{last[0]}\)"):
        load_weights(make_model(config), source, config, Streaming(4, 4, 1000))


def test_a_placement_that_fails_says_which():
    def fail(tensors):
        raise ValueError("does not fit")

    with pytest.raises(CheckpointError, match=r"does not fit \(tensor a.tensor\)"):
        stream([piece(len, fail)], CPU, Streaming(2, 2, 256), lambda *_: None)


def test_an_interrupt_while_the_files_are_read():
    """^C comes while this thread waits for the readers; they finish what they are at, and end."""
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    released = threading.Event()

    def interrupt(out):
        os.kill(os.getpid(), signal.SIGINT)
        assert released.wait(60)

    pieces = [piece(interrupt)] + [piece(len) for _ in range(20)]
    timer = threading.Timer(0.2, released.set)
    timer.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            stream(pieces, CPU, Streaming(1, 2, 256), lambda *_: None)
    finally:
        signal.signal(signal.SIGINT, handler)
        timer.join()


def test_the_first_bad_tensor_of_the_model_is_named_whatever_comes_first(tmp_path):
    tensors = random_tensors(SMALL)
    # In the file, the head ("lm_head") comes before the layers.
    for name in ("lm_head.weight", "model.layers.1.mlp.experts.down_proj_bias"):
        tensors[name].view(-1)[-1] = torch.nan
    folder = write_folder(tmp_path, tensors, make_config(SMALL))
    with pytest.raises(CheckpointError, match=r"model.layers.1.mlp.experts.down_proj_bias holds"):
        load(folder, Streaming(4, 4, 2_000))


def test_rows_are_aligned_in_a_buffer(tmp_path):
    """A tensor of any dtype may follow one of odd length."""
    path = tmp_path / "bytes"
    path.write_bytes(bytes(range(24)))
    odd = StoredTensor(path, "U8", (3,), 0, 3)
    wide = StoredTensor(path, "F32", (5,), 4, 20)
    found = []
    both = Placement(
        (Source("odd", StoredRows(odd, 0, 3)), Source("wide", StoredRows(wide, 1, 4))),
        lambda tensors: found.extend(t.clone() for t in tensors),
    )
    stream([both], CPU, Streaming(1, 1, 1), lambda *_: None)
    assert found[0].tolist() == [0, 1, 2]
    assert found[1].view(torch.uint8).tolist() == list(range(8, 20))
    assert both.nbytes == 15


def test_a_gpu_gets_more_readers_than_a_cpu():
    cpu, cuda = (Streaming.for_device(torch.device(name)) for name in ("cpu", "cuda"))
    assert cuda.threads > cpu.threads
    assert cpu.buffers * cpu.piece_bytes < cuda.buffers * cuda.piece_bytes <= 1 << 29
