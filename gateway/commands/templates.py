"""`prefixgate templates`: in which order a template stands, in which it would, and what that is worth. No gateway need
run.

Exit code 2 where a template cannot be used.
"""

from pathlib import Path
from typing import Annotated

import typer
from prometheus_client import CollectorRegistry

from gateway.command_line.answers import print_json
from gateway.template_metrics import TemplateMetrics
from gateway.templates.file import TemplateFileInvalid, read_kept_file
from gateway.templates.store import TemplateStore
from gateway.templates.types import KeptTemplate, reference_of
from gateway.templates.view import made_up_samples, sample_shares, shown
from gateway.terminal import AsJson, ConfigFile, read_config, refused
from prefix_index import TemplateFailed, TokenizerUnavailable
from prefix_index.layout import (
    Count,
    Layout,
    PromptTemplate,
    Renderer,
    SegmentKind,
    Syntax,
    TemplateInvalid,
    by_bytes,
    ordered,
    read_template,
)
from prefix_index.prompt import load_model_text

templates = typer.Typer(help="Templates: their order, and what it is worth.", no_args_is_help=True)

Tokenizer = Annotated[Path | None, typer.Option(help="tokenizer.json or its folder; default: a token is four bytes.")]
Block = Annotated[int, typer.Option(min=1, help="Tokens a block of the engine's cache.")]
Folder = Annotated[Path | None, typer.Option("--templates", help="Folder of templates; default: templates_dir.")]
_MADE_UP_CALLS = 20
_OWN_FILES = (".yaml", ".yml", ".json")
_FIXED_CHARS = 48


@templates.command()
def show(
    template: Annotated[str, typer.Argument(help="A template's file; any text with --syntax; or NAME, NAME@VERSION.")],
    syntax: Annotated[
        Syntax | None, typer.Option(help="The file is a prompt in this syntax, no template's file.")
    ] = None,
    tokenizer: Tokenizer = None,
    block_tokens: Block = 16,
    text: Annotated[bool, typer.Option("--text", help="Print the text in its new order instead.")] = False,
    as_json: AsJson = False,
    folder: Folder = None,
    config: ConfigFile = None,
) -> None:
    """A template in its order and in the one with fixed text first: what is moved and why, what stays, and the share of
    its sample calls that would be cached either way. Without samples, variables are made up."""
    kept = _kept(template, syntax, folder, config)
    count = _count(tokenizer)
    if text:
        _print_text(kept.layout.after)
        return
    if as_json:
        print_json(shown(kept, count, block_tokens))
        return
    _print_head(kept)
    _print_moves(kept.layout)
    _print_order("before", kept.layout.before)
    if kept.layout.moves:
        _print_order("after", kept.layout.after)
    typer.echo(_worth(kept, count, block_tokens, tokenizer))


@templates.command()
def check(
    files: Annotated[list[Path] | None, typer.Argument(help="Templates' files; default: those of the folder.")] = None,
    tokenizer: Tokenizer = None,
    block_tokens: Block = 16,
    as_json: AsJson = False,
    folder: Folder = None,
    config: ConfigFile = None,
) -> None:
    """Read templates as the gateway would, and say of each whether another order would be worth it."""
    kept = [_read(path) for path in files] if files else _store(folder, config).in_force
    count = _count(tokenizer)
    if as_json:
        print_json([shown(one, count, block_tokens) for one in kept])
        return
    for one in kept:
        state = "reordered" if one.reordered else "in order" if not one.layout.moves else "would be reordered"
        typer.echo(f"{one.reference}: {state}, moves: {len(one.layout.moves)}, stay: {len(one.layout.stays)}")
        for move in one.layout.moves:
            for caution in move.cautions:
                typer.echo(f"  look at: {caution}")
        typer.echo(f"  {_worth(one, count, block_tokens, tokenizer)}")
    typer.echo(f"usable, templates: {len(kept)}")


def _kept(named: str, syntax: Syntax | None, folder: Path | None, config: Path | None) -> KeptTemplate:
    """The template that an argument names. Raises what ends the command."""
    path = Path(named)
    if syntax is not None:
        return _of_text(path, syntax)
    if path.suffix in _OWN_FILES and path.is_file():
        return _read(path)
    reference = reference_of(named)
    if reference is None or path.is_file():
        raise refused(f"{named} is no template's file: with --syntax it is read as a prompt")
    if path.suffix in _OWN_FILES and folder is None and read_config(config, {}).templates_dir is None:
        raise refused(f"there is no file {named}")
    found = _store(folder, config).version(reference)
    if found is None:
        raise refused(f"there is no template {named}")
    return found


def _read(path: Path) -> KeptTemplate:
    if path.is_dir():
        raise refused(f"{path} is a folder: name it by --templates")
    try:
        return read_kept_file(path)
    except TemplateFileInvalid as error:
        raise refused(error) from None


def _of_text(path: Path, syntax: Syntax) -> KeptTemplate:
    """A file that is a prompt itself. It is not rendered unless it can be, so anything that can be read will do."""
    try:
        source = path.read_text(encoding="utf-8")
        layout = ordered(read_template(source, syntax))
        renderer = Renderer(layout.before if syntax is not Syntax.FORMAT else read_template("", syntax))
    except (TemplateInvalid, OSError, UnicodeDecodeError) as error:
        raise refused(f"{path}: {error}") from None
    return KeptTemplate(path.stem, "0", layout, renderer, digest="", chars=len(source))


def _store(folder: Path | None, config: Path | None) -> TemplateStore:
    where = folder or read_config(config, {}).templates_dir
    if where is None:
        raise refused("no folder of templates is configured (templates_dir); name one by --templates")
    try:
        return TemplateStore(where, TemplateMetrics(CollectorRegistry()))
    except TemplateFileInvalid as error:
        raise refused(error) from None


def _count(tokenizer: Path | None) -> Count:
    if tokenizer is None:
        return by_bytes
    try:
        return load_model_text(tokenizer, None, None).count_tokens
    except (TokenizerUnavailable, TemplateFailed) as error:
        raise refused(error) from None


def _worth(kept: KeptTemplate, count: Count, block_tokens: int, tokenizer: Path | None) -> str:
    """One line: the expected cached share before and after."""
    rule = "four bytes a token" if tokenizer is None else f"tokens of {tokenizer.name}"
    samples = list(kept.samples) or made_up_samples(kept.layout.before, _MADE_UP_CALLS)
    kind = "samples" if kept.samples else "calls with made-up variables"
    before, after, problem = sample_shares(kept.layout, kept.defaults, samples, (count, block_tokens))
    if before is None or after is None:
        return f"expected cached share: unknown, {problem}"
    figures = f"{before.share:.1%}" if not kept.layout.moves else f"{before.share:.1%} before, {after.share:.1%} after"
    said = f"{before.calls} {kind}, {before.prompt_tokens:,} tokens, blocks of {block_tokens}, {rule}"
    return f"expected cached share: {figures} ({said})"


def _print_head(kept: KeptTemplate) -> None:
    template = kept.layout.before
    order = "as written" if not kept.layout.moves else "reordered" if kept.reordered else "as written, reorder is off"
    typer.echo(f"{kept.reference}: {template.syntax.value}, messages: {len(template.messages)}, called {order}")


def _print_moves(layout: Layout) -> None:
    if not layout.moves:
        typer.echo("nothing to move")
    for move in layout.moves:
        where = f"message {move.message}, character {move.from_offset:,} -> {move.to_offset:,}"
        typer.echo(f"move   {where}, {move.chars:,} characters: {move.why}")
        for caution in move.cautions:
            typer.echo(f"       look at: {caution}")
    for stay in layout.stays:
        behind = f"{stay.chars_behind:,} characters that change less stand behind"
        typer.echo(
            f"stays  message {stay.message}, character {stay.offset:,} ({', '.join(stay.names)}): {stay.why}; {behind}"
        )


def _print_order(which: str, template: PromptTemplate) -> None:
    typer.echo(f"{which}:")
    for message in template.messages:
        if message.slot is not None:
            typer.echo(f"  messages of the variable {message.slot}")
            continue
        typer.echo(f"  {message.role}:")
        for segment in message.segments:
            if segment.kind is SegmentKind.FIXED:
                flat = " ".join(segment.source.split())
                if not flat:
                    continue
                cut = flat if len(flat) <= _FIXED_CHARS else f"{flat[:_FIXED_CHARS]}..."
                typer.echo(f"    {len(segment.source):>7,}  fixed        {cut}")
            else:
                what = segment.source if len(segment.source) <= _FIXED_CHARS else ", ".join(segment.names)
                typer.echo(f"    {len(segment.source):>7,}  {segment.volatility.label:<11}  {' '.join(what.split())}")


def _print_text(template: PromptTemplate) -> None:
    several = len(template.messages) > 1
    for message in template.messages:
        if several:
            typer.echo(f"--- {message.slot or message.role}")
        typer.echo(message.source, nl=several)
