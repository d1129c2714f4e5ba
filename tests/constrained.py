"""Constrained turns of nano: an engine, its format, and what came out."""

from collections import defaultdict
from pathlib import Path

from rose.engine.start import start_engine
from rose.options import EngineOptions
from rose.protocol import Request, SamplingParams
from rose.server.chat.harmony import HarmonyFormat
from rose.server.chat.turn import parse_turn
from rose.server.detokenize import TextCodec

NANO = Path(__file__).parents[1] / "rose" / "assets" / "nano"


class NanoRuns:
    """Runs requests on nano to their end."""

    def __init__(self, **options):
        defaults = {"dtype": "float32", "device": "cpu", "max_num_seqs": 32, "seed": 1}
        self.engine = start_engine(EngineOptions(model="nano", **(defaults | options)).resolve())
        self.codec = TextCodec.load(NANO)
        self.format = HarmonyFormat(self.codec)
        self._count = 0

    def submit(self, conversation, grammar, **sampling):
        """Queue a conversation; returns the request's id."""
        self._count += 1
        params = {"temperature": 1.0, "max_tokens": 300, "seed": self._count} | sampling
        request = Request(
            request_id=str(self._count),
            prompt_token_ids=self.format.render(conversation),
            sampling=SamplingParams(**params),
            grammar=grammar,
        )
        self.engine.add_request(request)
        return request.request_id

    def run(self):
        """Token ids and finish reason by (request id, index), when all have ended."""
        ids, reasons, logprobs = defaultdict(list), {}, defaultdict(list)
        while self.engine.has_work():
            for output in self.engine.step():
                key = (output.request_id, output.index)
                ids[key] += output.token_ids
                reasons[key] = output.finish_reason
                logprobs[key] += output.logprobs or []
            self.engine.check_integrity()
        self.logprobs = logprobs
        return {key: (ids[key], reasons[key]) for key in reasons}

    def turn(self, conversation, token_ids):
        """A turn as the parser reads it."""
        return parse_turn(self.format.parser(conversation), token_ids)

    def text(self, token_ids):
        """The text of ids, special tokens left out."""
        return self.codec.decode(token_ids, skip_special_tokens=True)
