"""Sizes in a manifest are short texts such as `(seq + 7) // 8`, evaluated without ever executing them as code."""

from __future__ import annotations

import ast
from collections.abc import Mapping

_OPERATIONS = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.FloorDiv: lambda a, b: a // b,
    ast.Mod: lambda a, b: a % b,
}


def evaluate(text: str | int, symbols: Mapping[str, int]) -> int:
    """The integer that an expression stands for. ValueError for anything but integers, symbols, + - * // % and brackets."""
    if isinstance(text, int):
        return text
    return _value(ast.parse(text, mode="eval").body, symbols, text)


def _value(node: ast.expr, symbols: Mapping[str, int], text: str) -> int:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    if isinstance(node, ast.Name) and node.id in symbols:
        return symbols[node.id]
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATIONS:
        return _OPERATIONS[type(node.op)](_value(node.left, symbols, text), _value(node.right, symbols, text))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_value(node.operand, symbols, text)
    raise ValueError(f"'{text}' is not a size expression over {', '.join(symbols) or 'no symbols'}")
