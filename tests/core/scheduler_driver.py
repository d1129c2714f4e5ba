"""A scheduler under test without an engine around it."""

from rose.config import CacheConfig, SchedulerConfig
from rose.core.scheduler import Scheduler
from rose.core.sequence import make_sequences
from rose.core.step import ModelRunnerOutput
from rose.protocol import Request, SamplingParams

STOP = 99


class Driver:
    """A scheduler; tests say which ids each step yields."""

    def __init__(self, cache=None, **limits):
        limits = {"max_num_seqs": 4, "max_batched_tokens": 32, "chunk_size": 16, **limits}
        self.cache = cache or CacheConfig(block_size=4, num_blocks=(64, 64), window=8)
        self.scheduler = Scheduler(SchedulerConfig(**limits), self.cache)
        self.next_id = 0

    def add(self, name, prompt=4, priority=0, **sampling):
        ids = list(range(prompt)) if isinstance(prompt, int) else prompt
        request = Request(
            request_id=name,
            prompt_token_ids=ids,
            priority=priority,
            sampling=SamplingParams(**sampling),
        )
        sequences = make_sequences(
            request,
            first_id=self.next_id,
            seed=0,
            eos_token_ids=(STOP,),
            longest=self.scheduler.longest_sequence,
        )
        self.next_id += len(sequences)
        self.scheduler.add(sequences)
        return sequences

    def schedule(self):
        step = self.scheduler.schedule()
        self.scheduler.check_integrity()
        return step

    def update(self, step, *ids, **kwargs):
        ids = ids or [[7]] * sum(row.samples for row in step.sequences)
        ids = [list(i) for i in ids]
        outputs = self.scheduler.update(step, ModelRunnerOutput(step.step_id, ids, **kwargs))
        self.scheduler.check_integrity()
        return outputs

    def names(self, step):
        live = self.scheduler._sequences
        return [live[row.sequence_id].request_id for row in step.sequences]


def shape(step):
    return [(row.start, row.num_tokens, row.samples) for row in step.sequences]
