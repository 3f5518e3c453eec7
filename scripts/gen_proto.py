#!/usr/bin/env python3
"""Generates `tidelog.wire.pb` and `tidelog.wire.messages` from `proto/`, or checks that they are up to date.

The .proto files are the only hand-written schema. For each of their messages a frozen dataclass is generated, because pure
code takes and gives plain values and may not import protobuf; `tidelog.wire.codec` translates between the two.
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


def dataclass_source(message: Descriptor, comment: str) -> str:
    """An integer has no default: 0 is a real epoch and a real offset, so every sender must say which it means."""
    lines = ["@value(kw_only=True)", f"class {message.name}:"]
    if comment:
        lines += [f'    """{comment}"""', ""]
    for field in message.fields:
        kind = field_type(field)
        if field.is_repeated:
            lines.append(f"    {field.name}: tuple[{kind}, ...] = ()")
        elif field.containing_oneof is not None:
            lines.append(f"    {field.name}: {kind} | None = None")
        elif kind in DEFAULTS:
            lines.append(f"    {field.name}: {kind} = {DEFAULTS[kind]}")
        else:
            lines.append(f"    {field.name}: {kind}")
    if not message.fields and not comment:
        lines.append("    pass")
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
    """File name below wire/ -> source: `messages.py` and `services.py`."""
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
                kind = "Bidi" if method.client_streaming else "Unary"
                name = f"{service.name}_{method.name}"
                constant = "".join(f"_{c}" if c.isupper() else c for c in name).replace("__", "_").strip("_").upper()
                types = f"m.{method.input_type.name}, m.{method.output_type.name}"
                methods.append(f'{constant} = {kind}("/{service.full_name}/{method.name}", {types})')
    body = "\n\n\n".join(dataclass_source(m, comments.get(m.full_name, "")) for m in ordered(messages))
    title = HEADER.format(doc="Every message of proto/ as a frozen value; field comments are in proto/.")
    imports = "from tidelog.errors import ErrorCode\nfrom tidelog.values import value"
    message_source = f"{title}\n{imports}\n\n\n{body}\n"
    title = HEADER.format(doc="Every method of proto/, as the Net port wants it.")
    imports = "from tidelog.ports.net import Bidi, Unary\nfrom tidelog.wire import messages as m\n"
    return {"messages.py": message_source, "services.py": f"{title}\n{imports}\n" + "\n".join(methods) + "\n"}


def formatted(source: str) -> str:
    ruff = [sys.executable, "-m", "ruff", "format", "-", "--config", str(ROOT / "pyproject.toml")]
    return subprocess.run(ruff, input=source, capture_output=True, text=True, check=True).stdout


def build(out: Path) -> dict[Path, str]:
    """Path below wire/ -> content, of everything generated."""
    files = compile_protos(out)
    sources = {Path(name): formatted(source) for name, source in generate(files).items()}
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
