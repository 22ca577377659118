"""A PTX interpreter in NumPy: runs generated kernels without a GPU, and refuses those that a GPU might run by luck.

    module = parse(text)
    memory = Memory()
    x, y = memory.alloc(array), memory.alloc(4 * n)
    module.kernel("scale").launch(grid=n // 128, block=128, args=[x, y, 2.0], memory=memory)
    result = memory.read(y, n, "f4")

What is asynchronous happens as late as it may, memory and registers start out as poison, and races, divergence and stray
accesses are `Fault`s that name the place. `Unsupported` means that the kernel uses something that is not modelled.
"""

from . import ops as ops
from .faults import Fault, Unsupported
from .formats import bf16_to_f32, f32_to_bf16
from .machine import Kernel, Module, Report, parse
from .memory import Memory
from .tensor_map import TensorMap

__all__ = ["Fault", "Kernel", "Memory", "Module", "Report", "TensorMap", "Unsupported"]
__all__ += ["bf16_to_f32", "f32_to_bf16", "parse"]
