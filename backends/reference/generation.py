"""One request from the engine's side of the fence: its sequence, its dice, its text, its clock."""

from dataclasses import dataclass, field

from torch import Generator

from backends.reference.metrics import Timeline
from backends.reference.sampling import new_generator
from backends.reference.sequence import Sequence
from backends.reference.tokenizer import ModelTokenizer, StopFinder, TextStream
from backends.reference.types import Delta, FinishReason, GenerationRequest, Listener, Receipt


@dataclass(frozen=True, slots=True)
class Ending:
    """Why a generation ended, with the stop string or stop token that ended it."""

    reason: FinishReason
    stop_reason: str | int | None = None


@dataclass(slots=True, eq=False)
class Generation:
    """A request being served; used on the engine's thread only."""

    request: GenerationRequest
    sequence: Sequence
    listener: Listener
    text: TextStream
    stop: StopFinder
    dice: Generator
    timeline: Timeline
    ending: Ending | None = field(default=None)

    def accept(self, token: int, eos_token_ids: frozenset[int]) -> Delta:
        """Append the sampled token and say what it adds; sets `ending` when it is the last.

        Tokens that end the answer (end of sequence, stop tokens) count as output but add no text; a stop string and
        what follows it add no text either.
        """
        self.sequence.tokens.append(token)
        params = self.request.sampling
        if token in eos_token_ids and not params.ignore_eos:
            return self._finish("", token, Ending(FinishReason.STOP))
        if token in params.stop_token_ids:
            return self._finish("", token, Ending(FinishReason.STOP, token))
        shown, found = self.stop.push(self.text.push(token))
        if found is not None:
            self.ending = Ending(FinishReason.STOP, found)
            return self.delta(shown, (token,))
        if self.sequence.output_tokens >= params.max_tokens:
            return self._finish(shown, token, Ending(FinishReason.LENGTH))
        return self.delta(shown, (token,))

    def receipt(self) -> Receipt:
        """What the request cost so far."""
        return Receipt(
            prompt_tokens=self.sequence.prompt_tokens,
            cached_tokens=self.sequence.cached_tokens or 0,
            created_cache_tokens=self.sequence.created_cache_tokens,
            completion_tokens=self.sequence.output_tokens,
            drafted_tokens=self.sequence.drafted_tokens,
            accepted_tokens=self.sequence.accepted_tokens,
        )

    def delta(self, text: str = "", token_ids: tuple[int, ...] = ()) -> Delta:
        """News with the receipt as it stands."""
        ending = self.ending
        if ending is None:
            return Delta(text, token_ids, self.receipt())
        return Delta(text, token_ids, self.receipt(), ending.reason, ending.stop_reason)

    def _finish(self, shown: str, token: int, ending: Ending) -> Delta:
        """The end came from a token, not from text: what was held back is shown, unless it completes a stop string."""
        more, found = self.stop.push(self.text.flush())
        self.ending = ending if found is None else Ending(FinishReason.STOP, found)
        return self.delta(shown + more + self.stop.flush(), (token,))


def new_generation(
    request: GenerationRequest, listener: Listener, *, block_size: int, tokenizer: ModelTokenizer, now_s: float
) -> Generation:
    """Everything a fresh request needs."""
    return Generation(
        request=request,
        sequence=Sequence(request, block_size),
        listener=listener,
        text=TextStream(tokenizer),
        stop=StopFinder(request.sampling.stop),
        dice=new_generator(request.sampling),
        timeline=Timeline(arrived_s=now_s),
    )
