"""Batches against a token-by-token description of the same step."""

import random

import numpy as np
import pytest
import torch

from rose.config import FULL, SLIDING, CacheConfig
from rose.core.step import NewSequence, ScheduledSequence, SchedulerOutput
from rose.protocol import SamplingParams
from rose.worker.block_tables import BlockTables
from rose.worker.forward_batch import BatchBuilder, DecodeRow
from rose.worker.token_pool import TokenPool

CPU = torch.device("cpu")
SLOTS, LONGEST = 6, 50


def make_builder(block_size):
    cache = CacheConfig(block_size=block_size, num_blocks=(100, 90), window=7)
    pool = TokenPool(SLOTS, LONGEST, CPU)
    tables = BlockTables(cache, SLOTS, LONGEST, CPU)
    builder = BatchBuilder(
        tables=tables, pool=pool, window=cache.window, plan_launches=True, device=CPU
    )
    return builder, pool


def build(builder, step):
    builder.extend(step)
    return builder.build(step)


def new_sequence(slot, token_ids):
    return NewSequence(slot, slot, token_ids, len(token_ids), SamplingParams(), 0, ())


@pytest.mark.parametrize("block_size", [1, 4, 16])
def test_batches_say_what_the_steps_say(block_size):
    """Random sequences grow by random chunks, all slots at once; slots are taken anew."""
    rng = random.Random(block_size)
    builder, _ = make_builder(block_size)
    tokens, tables, done = {}, {}, {}
    for step_id in range(60):
        step = SchedulerOutput(step_id)
        for slot in rng.sample(range(SLOTS), rng.randint(1, SLOTS)):
            if slot not in tokens or done[slot] == len(tokens[slot]):
                tokens[slot] = [rng.randrange(1000) for _ in range(rng.randint(1, LONGEST))]
                tables[slot], done[slot] = ([], []), 0
                builder.admit(new_sequence(slot, tokens[slot]))
            start = done[slot]
            count = rng.randint(1, min(9, len(tokens[slot]) - start))
            missing = -(-(start + count) // block_size) - len(tables[slot][0])
            new = tuple(tuple(rng.randrange(90) for _ in range(missing)) for _ in (FULL, SLIDING))
            for group in (FULL, SLIDING):
                tables[slot][group].extend(new[group])
            step.sequences.append(
                ScheduledSequence(
                    slot, slot, start, count, rng.random() < 0.5, new if missing else None
                )
            )
            done[slot] = start + count
        check(build(builder, step), step, tokens, tables, block_size)


def check(batch, step, tokens, tables, block_size):
    wanted_ids, wanted_positions, wanted_slots = [], [], ([], [])
    for s in step.sequences:
        for position in range(s.start, s.start + s.num_tokens):
            wanted_ids.append(tokens[s.slot][position])
            wanted_positions.append(position)
            for group in (FULL, SLIDING):
                block = tables[s.slot][group][position // block_size]
                wanted_slots[group].append(block * block_size + position % block_size)
    assert batch.token_ids.tolist() == wanted_ids
    assert batch.positions.tolist() == wanted_positions
    assert batch.token_ids.dtype == batch.positions.dtype == torch.int64
    attention = batch.attention
    assert [g.window for g in attention.groups] == [None, 7]
    for group in (FULL, SLIDING):
        assert attention.groups[group].slot_mapping.tolist() == wanted_slots[group]
        for row, s in zip(
            attention.groups[group].block_tables.tolist(), step.sequences, strict=True
        ):
            table = tables[s.slot][group]
            assert row[: len(table)] == table
    assert attention.query_lens == [s.num_tokens for s in step.sequences]
    assert attention.kv_lens == [s.start + s.num_tokens for s in step.sequences]
    assert attention.kv_len.tolist() == attention.kv_lens
    assert attention.query_start.tolist() == [0, *np.cumsum(attention.query_lens)]
    assert attention.query_start.dtype == attention.kv_len.dtype == torch.int32
    sampling = [i for i, s in enumerate(step.sequences) if s.samples]
    assert batch.rows.slots.tolist() == [step.sequences[i].slot for i in sampling]
    assert batch.rows.positions.tolist() == [attention.kv_lens[i] for i in sampling]
    last = [sum(attention.query_lens[: i + 1]) - 1 for i in sampling]
    assert batch.logits_index.tolist() == last


def test_a_sampled_id_is_the_next_steps_input_without_the_host_knowing_it():
    builder, pool = make_builder(4)
    builder.admit(new_sequence(2, [10, 11, 12]))
    first = SchedulerOutput(0, sequences=[ScheduledSequence(0, 2, 0, 3, True, ((5,), (6,)))])
    batch = build(builder, first)
    pool.put(batch.sampled_index, torch.tensor([77]))
    second = SchedulerOutput(1, sequences=[ScheduledSequence(0, 2, 3, 1, True, None)])
    batch = build(builder, second)
    assert batch.token_ids.tolist() == [77]
    assert batch.positions.tolist() == [3]
    assert batch.attention.groups[FULL].slot_mapping.tolist() == [5 * 4 + 3]
    assert batch.attention.groups[SLIDING].slot_mapping.tolist() == [6 * 4 + 3]
    assert pool.rows(torch.tensor([2]), 4).tolist() == [[10, 11, 12, 77]]


@pytest.mark.parametrize("bucket", [2, 5])
def test_inputs_of_a_graph_are_those_of_the_batch_and_padding(bucket):
    builder, pool = make_builder(4)
    builder.admit(new_sequence(2, [10, 11, 12]))
    builder.admit(new_sequence(4, [20, 21, 22, 23, 24]))
    step = SchedulerOutput(
        0,
        sequences=[
            ScheduledSequence(0, 4, 4, 1, True, ((7, 8), (3, 9))),
            ScheduledSequence(1, 2, 2, 1, True, ((5,), (6,))),
        ],
    )
    builder.extend(step)
    inputs, rows = builder.decode_inputs(step, bucket)
    batch = builder.build(step)
    assert inputs.shape == (len(DecodeRow), bucket)
    assert pool.gather(torch.from_numpy(inputs[DecodeRow.POOL])).tolist() == (
        batch.token_ids.tolist() + [0] * (bucket - 2)
    )
    assert inputs[DecodeRow.POSITION, :2].tolist() == batch.positions.tolist()
    assert inputs[DecodeRow.SLOT].tolist() == [4, 2] + [SLOTS] * (bucket - 2)
    for row, group, padding in ((DecodeRow.FULL, FULL, 100), (DecodeRow.SLIDING, SLIDING, 90)):
        expected = batch.attention.groups[group].slot_mapping.tolist()
        assert inputs[row].tolist() == expected + [padding * 4] * (bucket - 2)
    assert inputs[DecodeRow.NEXT, :2].tolist() == batch.sampled_index.tolist()
    assert rows.slots.tolist() == batch.rows.slots.tolist()
    assert rows.positions.tolist() == batch.rows.positions.tolist()


def test_the_last_position_of_the_longest_sequence_has_a_place():
    builder, pool = make_builder(16)
    builder.admit(new_sequence(5, list(range(LONGEST))))
    blocks = tuple(range(-(-LONGEST // 16)))
    step = SchedulerOutput(
        0, sequences=[ScheduledSequence(0, 5, 0, LONGEST, True, (blocks, blocks))]
    )
    batch = build(builder, step)
    pool.put(batch.sampled_index, torch.tensor([3]))
    assert pool.rows(torch.tensor([5]), LONGEST + 1)[0].tolist() == [*range(LONGEST), 3]
