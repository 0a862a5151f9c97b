"""Does a chat template walk the parts of a message, or does it want text?

Engines decide this by reading the template, not by running it, so we read it the same way: a template wants parts
when somewhere in it a loop runs over the content of a message.

    {% for message in messages %}                 `message` is an item of `messages` (or of a variable set from it)
        {% for part in message['content'] %}      a loop over its content: PARTS

Also counted, as vLLM does: a loop over a plain variable called `content` outside of macros, and a loop in a macro over
the parameter that some call fills with a message's content. Filters, tests and slices around a value are looked
through. Scopes are ignored. Cost: a few walks over the syntax tree, once per template.
"""

from collections.abc import Iterator

from jinja2 import nodes

from prefix_index.prompt.types import ContentFormat

_MEDIA_NAMES = ("image", "audio", "video", "vision")
_NAMES = {"message", "msg", "m"}


def content_format(tree: nodes.Template) -> ContentFormat:
    """The content format a parsed template wants."""
    message_names = _loop_targets(tree, _aliases(tree, "messages"))
    in_macros = {id(loop) for macro in tree.find_all(nodes.Macro) for loop in macro.find_all(nodes.For)}
    for loop in tree.find_all(nodes.For):
        walked = _unwrapped(loop.iter)
        if _is_content_of(walked, message_names) or (_name(walked) == "content" and id(loop) not in in_macros):
            return ContentFormat.PARTS
    for macro in tree.find_all(nodes.Macro):
        filled = set(_parameters_filled_with_content(tree, macro, message_names))
        if any(_name(_unwrapped(loop.iter)) in filled for loop in macro.find_all(nodes.For)):
            return ContentFormat.PARTS
    return ContentFormat.STRING


def content_format_of_names(tree: nodes.Template, source: str) -> ContentFormat:
    """The content format by SGLang's rule: a template that names media, or loops over the content of `message`, `msg`
    or `m`, walks parts."""
    walked = (_unwrapped(loop.iter) for loop in tree.find_all(nodes.For))
    by_name = any(name in source for name in _MEDIA_NAMES)
    return (
        ContentFormat.PARTS if by_name or any(_is_content_of(node, _NAMES) for node in walked) else ContentFormat.STRING
    )


def _aliases(tree: nodes.Template, variable: str) -> set[str]:
    """`variable` and every variable set from it, directly or in steps."""
    names = {variable}
    assignments = [
        (target, _name(_unwrapped(assignment.node)))
        for assignment in tree.find_all(nodes.Assign)
        if (target := _name(assignment.target)) is not None
    ]
    while found := {target for target, source in assignments if source in names and target not in names}:
        names |= found
    return names


def _loop_targets(tree: nodes.Template, iterated: set[str]) -> set[str]:
    """Names of the loop variables of all loops over one of `iterated`."""
    return {
        target
        for loop in tree.find_all(nodes.For)
        if _name(_unwrapped(loop.iter)) in iterated and (target := _name(loop.target)) is not None
    }


def _parameters_filled_with_content(
    tree: nodes.Template, macro: nodes.Macro, message_names: set[str]
) -> Iterator[str | None]:
    for call in tree.find_all(nodes.Call):
        if _name(call.node) != macro.name:
            continue
        for parameter, argument in zip(macro.args, call.args, strict=False):
            if _is_content_of(_unwrapped(argument), message_names):
                yield parameter.name
        for keyword in call.kwargs:
            if _is_content_of(_unwrapped(keyword.value), message_names):
                yield keyword.key


def _unwrapped(node: nodes.Node) -> nodes.Node:
    """`node` without the filters, tests and slices around it."""
    while isinstance(node, nodes.Filter | nodes.Test) or (
        isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Slice)
    ):
        assert node.node is not None, "only filter blocks are filters of nothing, and they are no expressions"
        node = node.node
    return node


def _name(node: nodes.Node) -> str | None:
    return node.name if isinstance(node, nodes.Name) else None


def _is_content_of(node: nodes.Node, message_names: set[str]) -> bool:
    if isinstance(node, nodes.Getattr):
        return node.attr == "content" and _name(node.node) in message_names
    if isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Const):
        return node.arg.value == "content" and _name(node.node) in message_names
    return False
