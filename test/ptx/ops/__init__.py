"""One module per family of instructions. A new family (bulk copies, mbarrier, wgmma) is a new module, named here."""

from . import asynchronous as asynchronous
from . import barriers as barriers
from . import clusters as clusters
from . import control as control
from . import convert as convert
from . import floating as floating
from . import integer as integer
from . import memory as memory
from . import tensor as tensor
from . import warp as warp
