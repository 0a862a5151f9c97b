"""The tokenizers and templates that the configuration names, read."""

from datetime import datetime
from zoneinfo import ZoneInfo

from gateway.config import Config, Model
from prefix_index.prompt import ModelText, Renderer, load_model_text


def load_model_texts(config: Config) -> dict[str, ModelText]:
    """One for each served model, nothing shared. Blocking; raises `TokenizerUnavailable` or `TemplateFailed`."""
    return {name: _load(model) for name, model in config.models.items()}


def _load(model: Model) -> ModelText:
    zone = None if model.timezone is None else ZoneInfo(model.timezone)
    return load_model_text(
        model.tokenizer,
        model.chat_template,
        lambda: datetime.now(zone),
        renderer=None if model.renderer is None else Renderer(model.renderer),
        encoding=model.encoding,
    )
