"""One module per family of instructions. A new family is a new module, named here."""

from . import asynchronous as asynchronous
from . import barriers as barriers
from . import bulk as bulk
from . import clusters as clusters
from . import control as control
from . import convert as convert
from . import floating as floating
from . import integer as integer
from . import mbarrier as mbarrier
from . import memory as memory
from . import tensor as tensor
from . import warp as warp
from . import warpgroup as warpgroup
