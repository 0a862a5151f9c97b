"""Messages of protobuf that are written down here by their numbers, with the types that the wire has.

    {"KeyValue": {"key": (1, "string"), "value": (2, "AnyValue")}} --message_classes--> classes, by name

The packages that have such messages ready made bring files of the same names as others do (`xds-protos` has its own of
`google` and `opentelemetry`), and whose lie there in the end is chance. So the few that are needed are described, under
a name of our own; what is not named is passed over when it comes. Enumerations are numbers (`int32`), which look the
same on the wire. Needs protobuf: the extras `otel` and `epp`.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal

from google.protobuf import struct_pb2
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

Fields = Mapping[str, tuple[int, str]]
"""Numbers and types by name. `*`: any number of times; `{}`: by text; `?`: one of those of the message that have it."""
ONE_OF: Final = "shown"
"""What the alternatives of a message are called together, for `WhichOneof`."""
_NUMBERS: Final = {
    "bool": FieldDescriptorProto.TYPE_BOOL,
    "double": FieldDescriptorProto.TYPE_DOUBLE,
    "fixed32": FieldDescriptorProto.TYPE_FIXED32,
    "fixed64": FieldDescriptorProto.TYPE_FIXED64,
    "int32": FieldDescriptorProto.TYPE_INT32,
    "int64": FieldDescriptorProto.TYPE_INT64,
    "sfixed64": FieldDescriptorProto.TYPE_SFIXED64,
}
_SIMPLE: Final = {**_NUMBERS, "bytes": FieldDescriptorProto.TYPE_BYTES, "string": FieldDescriptorProto.TYPE_STRING}
_OTHERS: Final = {"Struct": ".google.protobuf.Struct"}


def message_classes(
    package: str, messages: Mapping[str, Fields], syntax: Literal["proto2", "proto3"]
) -> dict[str, Any]:
    """The classes of messages, by name. In `proto2` each field knows whether it was set, in `proto3` it may not.

    Raises `TypeError` for what protobuf cannot make a class of.
    """
    pool = DescriptorPool()
    structs = FileDescriptorProto.FromString(struct_pb2.DESCRIPTOR.serialized_pb)
    pool.Add(structs)
    described = _described(package, messages)
    file = FileDescriptorProto(name=f"{package}.proto", package=package, syntax=syntax, message_type=described)
    file.dependency.append(structs.name)
    pool.Add(file)
    return {name: GetMessageClass(pool.FindMessageTypeByName(f"{package}.{name}")) for name in messages}


def _described(package: str, messages: Mapping[str, Fields]) -> Iterable[DescriptorProto]:
    for name, fields in messages.items():
        message = DescriptorProto(name=name)
        if any(kind.endswith("?") for _, kind in fields.values()):
            message.oneof_decl.add(name=ONE_OF)
        for field, (number, kind) in fields.items():
            _add(message, field, number, kind, f"{package}.{name}")
        yield message


def _add(message: DescriptorProto, field: str, number: int, kind: str, path: str) -> None:
    """A field of the message that is called `path`."""
    package, of_one = path.rpartition(".")[0], kind.rstrip("*?{}")
    one = message.field.add(name=field, number=number, label=FieldDescriptorProto.LABEL_OPTIONAL)
    if kind.endswith("?"):
        one.oneof_index = 0
    elif of_one != kind:
        one.label = FieldDescriptorProto.LABEL_REPEATED
    if kind.endswith("*") and of_one in _NUMBERS:
        one.options.packed = True
    if kind.endswith("{}"):
        entry = _entry(f"{field.title().replace('_', '')}Entry", of_one, package)
        message.nested_type.append(entry)
        one.type, one.type_name = FieldDescriptorProto.TYPE_MESSAGE, f".{path}.{entry.name}"
    else:
        _typed(one, of_one, package)


def _entry(name: str, kind: str, package: str) -> DescriptorProto:
    """One item of what is kept by text."""
    entry = DescriptorProto(name=name)
    entry.options.map_entry = True
    for number, (field, of_one) in enumerate((("key", "string"), ("value", kind)), 1):
        _typed(entry.field.add(name=field, number=number, label=FieldDescriptorProto.LABEL_OPTIONAL), of_one, package)
    return entry


def _typed(field: FieldDescriptorProto, kind: str, package: str) -> None:
    if kind in _SIMPLE:
        field.type = _SIMPLE[kind]
    else:
        field.type = FieldDescriptorProto.TYPE_MESSAGE
        field.type_name = _OTHERS.get(kind, f".{package}.{kind}")
