"""TensorRT-LLM, context first: two calls one after the other, and the first token comes from the first.

    context      body, no stream, disaggregated_params {request_type: context_only, disagg_request_id}
                 answer: choices[0].disaggregated_params with the first token, and the ids of the prompt
    generation   the client's body, its prompt replaced by the ids, and the params with
                 request_type generation_only and the usage of the context call: it goes on behind the first token

Members of the params that are not named here pass as they were written; what is no object is no params. Where the
answer was over with its first token there is nothing to generate.
"""

from typing import Final

import msgspec

from backends.disaggregated.answers import answer_of, written, written_object
from backends.disaggregated.types import Edit, Handed, Handover, Meeting, as_prefill

_GOES_ON: Final = frozenset({None, "length", "not_finished"})


def _prefill(meeting: Meeting, _is_chat: bool) -> Edit:
    params = msgspec.json.encode({"request_type": "context_only", "disagg_request_id": meeting.number})
    return Edit(
        frozenset({"stream", "stream_options", "disaggregated_params"}),
        {"stream": b"false", "disaggregated_params": params},
    )


def _read(body: bytes) -> Handed:
    answer = answer_of(body)
    first = answer.choices[0] if answer.choices else None
    return Handed(
        params=None if first is None else written_object(first.disaggregated_params),
        prompt_ids=written(answer.prompt_token_ids),
        usage=written(answer.usage),
        ended=first is not None and first.finish_reason not in _GOES_ON,
    )


def _decode(meeting: Meeting, handed: Handed, is_chat: bool) -> Edit:
    assert handed.params is not None, "without them there is no decode leg"
    params = msgspec.json.decode(handed.params, type=dict[str, msgspec.Raw])
    params["request_type"] = msgspec.Raw(b'"generation_only"')
    params["disagg_request_id"] = msgspec.Raw(msgspec.json.encode(meeting.number))
    if handed.usage is not None:
        params["ctx_usage"] = msgspec.Raw(handed.usage)
    put = {"disaggregated_params": msgspec.json.encode(params)}
    cut = {"disaggregated_params"}
    if handed.prompt_ids is not None:
        prompt = "prompt_token_ids" if is_chat else "prompt"
        put[prompt] = handed.prompt_ids
        cut.add(prompt)
    return Edit(frozenset(cut), put)


CONTEXT_FIRST: Final = Handover(
    name="context_first",
    is_concurrent=False,
    keeps_prompt=False,
    decodes_alone=True,
    decode_frees=False,
    prefill=_prefill,
    read=_read,
    decode=_decode,
    reports=as_prefill,
)
