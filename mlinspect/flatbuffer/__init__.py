"""FlatBuffers driven by schemas: parse ``.fbs`` text, decode any table with checks, encode it back."""

from mlinspect.flatbuffer.decode import Decoder, Plan, Record
from mlinspect.flatbuffer.encode import encode
from mlinspect.flatbuffer.parse import load_schema, parse_schema
from mlinspect.flatbuffer.schema import Schema

__all__ = ["Decoder", "Plan", "Record", "Schema", "encode", "load_schema", "parse_schema"]
