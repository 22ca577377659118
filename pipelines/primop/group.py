"""Functions with the same body are one function: thirty equal layers, or the kernels two entry points share."""

from __future__ import annotations

import re
from dataclasses import dataclass

from mlir import ir
from mlir.dialects import func

from tilec.pipelines.passes import Pass
from tilec.pipelines.primop.outline import callee_of, functions, ops_in


@dataclass(frozen=True)
class Group(Pass):
    """Merge chunk or kernel functions that differ only in their names; the first one's name stays."""

    name = "primop-group"
    anchor = "builtin.module"

    def run(self, op: ir.OpView) -> None:
        for marker in ("primop.kernel", "primop.chunk"):
            kept: dict[str, str] = {}
            renamed: dict[str, str] = {}
            for function in functions(op, marker):
                name = ir.StringAttr(function.attributes["sym_name"]).value
                text = re.sub(r'@([\w.$-]+|"[^"]*")', "@", function.operation.get_asm(use_local_scope=True), count=1)
                if text in kept:
                    renamed[name] = kept[text]
                    function.operation.erase()
                else:
                    kept[text] = name
            if renamed:
                _redirect(op, renamed)


def _redirect(module: ir.OpView, renamed: dict[str, str]) -> None:
    for call in ops_in(module, func.CallOp):
        callee = callee_of(call)
        if callee in renamed:
            call.operation.attributes["callee"] = ir.FlatSymbolRefAttr.get(renamed[callee])
