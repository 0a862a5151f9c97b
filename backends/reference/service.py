"""What the routes need of one model: its engine, and the way from request bodies to token ids."""

from dataclasses import dataclass

from backends.reference.apart import Transfers
from backends.reference.chat_template import ChatTemplate
from backends.reference.engine import Engine
from backends.reference.errors import RequestRefused
from backends.reference.tokenizer import ModelTokenizer
from backends.reference.wire import ChatBody, CompletionBody, check_messages


@dataclass(frozen=True, slots=True)
class Service:
    """An engine, and the tokenizer and template of its model; `transfers` where it has a role for other engines."""

    engine: Engine
    tokenizer: ModelTokenizer
    template: ChatTemplate
    transfers: Transfers | None = None

    @property
    def model(self) -> str:
        """The name clients use."""
        return self.engine.config.served_name

    def check_model(self, model: str | None) -> None:
        """Raises `RequestRefused` (404) for another model than ours; none given means ours."""
        if model is not None and model != self.model:
            message = f"The model `{model}` does not exist. Valid aliases: {self.model}."
            raise RequestRefused(message, param="model", status=404)

    def render(self, body: ChatBody) -> list[int]:
        """Token ids of a chat prompt, for an answer and for /tokenize alike. Raises `RequestRefused` (400)."""
        check_messages(body)
        variables: dict[str, object] = dict(body.chat_template_kwargs or {})
        if body.reasoning_effort is not None:
            variables["reasoning_effort"] = body.reasoning_effort
        variables |= {
            "tools": body.tools,
            "documents": body.documents,
            "add_generation_prompt": body.add_generation_prompt,
        }
        text = self.template.render(body.messages, variables, continue_final_message=body.continue_final_message)
        return self.tokenizer.encode(text, add_special_tokens=body.add_special_tokens)

    def prompts_of(self, body: CompletionBody) -> list[list[int]]:
        """Token ids of each text prompt: a string, a list of ids, or a list of several strings or several lists.

        Raises `RequestRefused` (400).
        """
        prompt = body.prompt
        batch = isinstance(prompt, list) and {type(one) for one in prompt} in ({str}, {list})
        return [self._prompt(one, body.add_special_tokens) for one in (prompt if batch else [prompt])]

    def check_token_ids(self, ids: object, param: str) -> list[int]:
        """`ids` if it is a list of token ids of this model, else `RequestRefused` (400)."""
        vocab = self.engine.shape.vocab
        if not isinstance(ids, list) or not all(type(one) is int and 0 <= one < vocab for one in ids):
            message = f"{param} must be text or token ids below {vocab}, or a list of several of either"
            raise RequestRefused(message, param=param)
        return ids

    def _prompt(self, prompt: object, add_special_tokens: bool) -> list[int]:
        if isinstance(prompt, str):
            return self.tokenizer.encode(prompt, add_special_tokens=add_special_tokens)
        return self.check_token_ids(prompt, "prompt")
