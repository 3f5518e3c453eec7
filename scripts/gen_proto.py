#!/usr/bin/env python3
"""Generates `tidelog.wire.pb`, `messages` and `services` from `proto/`, or checks that they are up to date.

The .proto files are the only hand-written schema. For each of their messages a class of plain values is generated, because
pure code may not import protobuf; `tidelog.wire.codec` translates between the two. `messages.pyi` is for people and the type
checker. `messages.py` has each method written out: `dataclasses` would compile 500 of them when a process starts, which takes
as long as importing gRPC.
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from google.protobuf import descriptor_pb2, descriptor_pool
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from grpc_tools import protoc

ROOT = Path(__file__).resolve().parent.parent
PROTO = ROOT / "proto"
WIRE = ROOT / "services" / "tidelog" / "wire"
HEADER = '''"""{doc}

Generated from proto/ by `make proto`; do not edit.
"""
'''
SCALARS = {
    FieldDescriptor.CPPTYPE_INT32: "int",
    FieldDescriptor.CPPTYPE_INT64: "int",
    FieldDescriptor.CPPTYPE_BOOL: "bool",
}
DEFAULTS = {"bool": "False", "str": '""', "bytes": 'b""', "ErrorCode": "ErrorCode.NONE"}


def compile_protos(out: Path) -> descriptor_pb2.FileDescriptorSet:
    """Writes *_pb2.py below `out`; returns the descriptors with their comments."""
    include = str(Path(protoc.__file__).parent / "_proto")
    files = sorted(str(p.relative_to(PROTO)) for p in PROTO.rglob("*.proto"))
    descriptors = out / "descriptors.bin"
    arguments = ["protoc", f"-I{PROTO}", f"-I{include}", f"--python_out={out}", f"--descriptor_set_out={descriptors}"]
    if protoc.main([*arguments, "--include_imports", "--include_source_info", *files]) != 0:
        raise SystemExit("protoc failed")
    found = descriptor_pb2.FileDescriptorSet.FromString(descriptors.read_bytes())
    descriptors.unlink()
    return found


def field_type(field: FieldDescriptor) -> str:
    if field.cpp_type == FieldDescriptor.CPPTYPE_MESSAGE:
        return field.message_type.name
    if field.cpp_type == FieldDescriptor.CPPTYPE_ENUM:
        return field.enum_type.name
    if field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
        return "bytes" if field.type == FieldDescriptor.TYPE_BYTES else "str"
    return SCALARS[field.cpp_type]


def parameter(field: FieldDescriptor) -> tuple[str, str]:
    """Type and default of a field. An integer has no default: 0 is a real epoch and a real offset, so a sender must say it."""
    kind = field_type(field)
    if field.is_repeated:
        return f"tuple[{kind}, ...]", "()"
    if field.containing_oneof is not None:
        return f"{kind} | None", "None"
    return kind, DEFAULTS.get(kind, "")


def stub_source(message: Descriptor, comment: str) -> str:
    lines = ["@value(kw_only=True)", f"class {message.name}(Message):"]
    if comment:
        lines += [f'    """{comment}"""', ""]
    for field in message.fields:
        kind, default = parameter(field)
        lines.append(f"    {field.name}: {kind}" + (f" = {default}" if default else ""))
    if not message.fields and not comment:
        lines.append("    pass")
    return "\n".join(lines)


def class_source(message: Descriptor) -> str:
    names = [field.name for field in message.fields]
    lines = [f"class {message.name}(Message):", f"    __slots__ = {tuple(names)!r}"]
    if not names:
        return "\n".join(lines)
    found = [(name, *parameter(field)) for name, field in zip(names, message.fields, strict=True)]
    lines += [
        *(f"    {name}: {kind}" for name, kind, _ in found),
        f"    def __init__(self, *, {', '.join(f'{name}={default}' if default else name for name, _, default in found)}):",
        *(f"        self.{name} = {name}" for name in names),
        "    def _values(self):",
        f"        return ({', '.join(f'self.{name}' for name in names)},)",
    ]
    return "\n".join(lines)


def ordered(messages: list[Descriptor]) -> list[Descriptor]:
    """Each message after those it contains."""
    done: dict[str, Descriptor] = {}

    def visit(message: Descriptor) -> None:
        for field in message.fields:
            if field.message_type is not None and field.message_type.full_name not in done:
                visit(field.message_type)
        done.setdefault(message.full_name, message)

    for message in messages:
        visit(message)
    return list(done.values())


def first_sentences(text: str) -> str:
    return " ".join(text.split())[:110].rsplit(". ", 1)[0].rstrip(".") + "." if text.strip() else ""


def generate(files: descriptor_pb2.FileDescriptorSet) -> dict[str, str]:
    """File name below wire/ -> source: `messages.py`, `messages.pyi` and `services.py`."""
    pool = descriptor_pool.DescriptorPool()
    comments: dict[str, str] = {}
    messages: list[Descriptor] = []
    methods: list[str] = []
    for file in files.file:
        pool.Add(file)
        for place in file.source_code_info.location:
            if len(place.path) == 2 and place.path[0] == 4:
                comments[f"{file.package}.{file.message_type[place.path[1]].name}"] = first_sentences(
                    place.leading_comments
                )
        described = pool.FindFileByName(file.name)
        messages += described.message_types_by_name.values()
        for service in described.services_by_name.values():
            methods.append(f"# {service.full_name}")
            for method in service.methods:
                kind = "Bidi" if method.server_streaming else "Unary"
                name = f"{service.name}_{method.name}"
                constant = "".join(f"_{c}" if c.isupper() else c for c in name).replace("__", "_").strip("_").upper()
                types = f"m.{method.input_type.name}, m.{method.output_type.name}"
                methods.append(f'{constant} = {kind}("/{service.full_name}/{method.name}", {types})')
    values = HEADER.format(doc="Every message of proto/ as a frozen value; field comments are in proto/.")
    used = "from tidelog.errors import ErrorCode\nfrom tidelog.values import Message"
    classes = "\n\n\n".join(map(class_source, ordered(messages)))
    stubs = "\n\n\n".join(stub_source(m, comments.get(m.full_name, "")) for m in ordered(messages))
    title = HEADER.format(doc="Every method of proto/, as the Net port wants it.")
    imports = "from tidelog.ports.net import Bidi, Unary\nfrom tidelog.wire import messages as m\n"
    return {
        "messages.py": f"{HEADER.format(doc='The code of messages.pyi.')}\n{used}\n\n\n{classes}\n",
        "messages.pyi": f"{values}\n{used}, value\n\n\n{stubs}\n",
        "services.py": f"{title}\n{imports}\n" + "\n".join(methods) + "\n",
    }


def formatted(name: str, source: str) -> str:
    ruff = [
        sys.executable,
        "-m",
        "ruff",
        "format",
        "-",
        "--config",
        str(ROOT / "pyproject.toml"),
        "--stdin-filename",
        name,
    ]
    return subprocess.run(ruff, input=source, capture_output=True, text=True, check=True).stdout


def build(out: Path) -> dict[Path, str]:
    """Path below wire/ -> content, of everything generated."""
    files = compile_protos(out)
    sources = {Path(name): formatted(name, source) for name, source in generate(files).items()}
    for path in sorted(out.rglob("*_pb2.py")):
        # protoc writes absolute imports from its include root; here that root is tidelog.wire.pb.
        text = path.read_text().replace("from tidelog.v1 import", "from tidelog.wire.pb import")
        sources[Path("pb") / path.name] = text
    return sources


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="fail if the generated files differ; write nothing")
    check = parser.parse_args().check
    with tempfile.TemporaryDirectory() as scratch:
        wanted = build(Path(scratch))
    stale = [p for p, text in wanted.items() if not (WIRE / p).exists() or (WIRE / p).read_text() != text]
    if check and stale:
        raise SystemExit("out of date, run `make proto`: " + ", ".join(str(p) for p in stale))
    if not check:
        for path in stale:
            (WIRE / path).parent.mkdir(parents=True, exist_ok=True)
            (WIRE / path).write_text(wanted[path])
    print(f"{len(wanted)} generated files, {len(stale)} {'stale' if check else 'written'}")


if __name__ == "__main__":
    main()
