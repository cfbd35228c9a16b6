"""Avro → plain values, for whoever reads thousands of ordinary records a second.

A function is written for each schema, once, as Python's own data classes write theirs. Most fields
of our records are absent or empty, and such a field is one zero byte: here it costs a comparison,
where fastavro asks for each field what kind it is. All in all it takes half the time.

Plain values are what fastavro gives, but times stay the numbers that they are on the wire. Whatever
is not as our own writers write it raises `NotPlain`; fastavro decides then, for it may be right.
"""

import struct
from collections.abc import Callable, Iterator, Mapping
from typing import Any

Plain = dict[str, Any]
Lines = Iterator[str]

#: Bytes of a number of 64 bits at most.
_MAX_VARINT_BYTES = 10


class NotPlain(ValueError):  # noqa: N818 - no failure: the other way takes it
    """Something else has to read it."""


def reader(schema: Mapping[str, Any]) -> Callable[[bytes, int], Plain]:
    """Reads a record of that schema from a position to the end of the bytes.

    Raises NotPlain. TypeError for a schema with types that our records do not use.
    """
    read = _Source(schema).function()

    def read_all(value: bytes, position: int) -> Plain:
        try:
            plain, end = read(value, position, len(value))
        except (IndexError, KeyError, UnicodeDecodeError, struct.error):
            raise NotPlain from None
        if end != len(value):
            raise NotPlain
        found: Plain = plain
        return found

    return read_all


def _number(value: bytes, position: int) -> tuple[int, int]:
    """A number in zigzag code, and where the next value begins."""
    number = shift = 0
    for byte in value[position : position + _MAX_VARINT_BYTES]:
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            if number >> 64:
                raise NotPlain
            return number >> 1 ^ -(number & 1), position + shift // 7
    raise NotPlain


class _Source:
    """The text of the functions, one for each record and list, and what they refer to.

    In it `v` is the value, `p` the position, `size` the end, `n` and `e` numbers of the moment. Of
    the schema it holds numbers and, as constants, names; no text of it is run.
    """

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._lines: list[str] = []
        self._known: dict[str, Any] = {
            "number": _number, "double": struct.Struct("<d").unpack_from, "NotPlain": NotPlain,
            "booleans": (False, True),
        }  # fmt: skip
        self._named: dict[str, Any] = {}
        self._num_functions = 0
        self._first = self._record(schema, schema.get("namespace", ""))

    def function(self) -> Callable[[bytes, int, int], tuple[Any, int]]:
        """The reader of the whole: value, position, size → what was read, the position behind."""
        exec("\n".join(self._lines), self._known)  # noqa: S102 - made here, of numbers and constants
        made: Callable[[bytes, int, int], tuple[Any, int]] = self._known[self._first]
        return made

    def _add(self, body: Lines) -> str:
        name = f"read_{self._num_functions}"
        self._num_functions += 1
        self._lines += [f"def {name}(v, p, size):", *(f"    {line}" for line in body)]
        return name

    def _record(self, schema: Mapping[str, Any], namespace: str) -> str:
        namespace = schema.get("namespace", namespace)
        fields = schema["fields"]
        body = [
            line
            for index, field in enumerate(fields)
            for line in self._value(field["type"], f"f{index}", namespace)
        ]
        items = ", ".join(f"{field['name']!r}: f{index}" for index, field in enumerate(fields))
        name = self._add(iter([*body, f"return {{{items}}}, p"]))
        self._named[_full(schema["name"], namespace)] = ("function", name)
        return name

    def _value(self, schema: Any, to: str, namespace: str) -> Lines:
        """Statements that read a value of that schema into the variable `to`."""
        if isinstance(schema, list):
            yield from self._union(schema, to, namespace)
        elif isinstance(schema, str):
            yield from _primitive(schema, to) or self._made(_full(schema, namespace), to)
        elif schema["type"] == "record":
            yield f"{to}, p = {self._record(schema, namespace)}(v, p, size)"
        elif schema["type"] == "enum":
            name = _full(schema["name"], schema.get("namespace", namespace))
            constant = f"symbols_{len(self._known)}"
            self._known[constant] = {2 * n: symbol for n, symbol in enumerate(schema["symbols"])}
            self._named[name] = ("symbols", constant)
            yield from self._made(name, to)
        elif schema["type"] == "array":
            yield from self._array(schema["items"], to, namespace)
        else:  # a logical type over a primitive one
            yield from self._value(schema["type"], to, namespace)

    def _made(self, name: str, to: str) -> Lines:
        if name not in self._named:
            raise TypeError(f"{name} has no plain reader")
        kind, made = self._named[name]
        if kind == "function":
            yield f"{to}, p = {made}(v, p, size)"
        else:
            yield f"{to} = {made}[v[p]]"
            yield "p += 1"

    def _union(self, members: list[Any], to: str, namespace: str) -> Lines:
        yield "n = v[p]"
        yield "p += 1"
        for index, member in enumerate(members):
            yield f"{'elif' if index else 'if'} n == {2 * index}:"
            yield from _indented(self._value(member, to, namespace))
        yield "else:"
        yield "    raise NotPlain"

    def _array(self, items: Any, to: str, namespace: str) -> Lines:
        body = [
            "found = []",
            "while True:",
            "    count, p = number(v, p)",
            "    if count < 0:",  # with the size of the block behind it, which ours do not write
            "        raise NotPlain",
            "    if not count:",
            "        return found, p",
            "    for _ in range(count):",
            *_indented(_indented(self._value(items, "item", namespace))),
            "        found.append(item)",
        ]
        yield "if v[p]:"
        yield f"    {to}, p = {self._add(iter(body))}(v, p, size)"
        yield "else:"
        yield f"    {to} = []"
        yield "    p += 1"


def _full(name: str, namespace: str) -> str:
    return name if "." in name else f"{namespace}.{name}"


def _indented(lines: Lines) -> Lines:
    return (f"    {line}" for line in lines)


def _primitive(kind: str, to: str) -> tuple[str, ...]:
    """Statements for a type that has no parts; none for a name of another one."""
    return {
        "null": (f"{to} = None",),
        "boolean": (f"{to} = booleans[v[p]]", "p += 1"),
        "double": (f"({to},) = double(v, p)", "p += 8"),
        "long": (
            "n = v[p]",
            "if n < 128:",
            f"    {to} = n >> 1 ^ -(n & 1)",
            "    p += 1",
            "else:",
            f"    {to}, p = number(v, p)",
        ),
        "string": (
            "n = v[p]",
            "if n < 128 and not n & 1:",
            "    p += 1",
            "    e = p + (n >> 1)",
            "else:",
            "    n, p = number(v, p)",
            "    e = p + n",
            "if not p <= e <= size:",
            "    raise NotPlain",
            f"{to} = v[p:e].decode()",
            "p = e",
        ),
    }.get(kind, ())
