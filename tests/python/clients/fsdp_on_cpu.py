"""Runs a script as accelerate runs it on GPUs: accelerate offers FSDP for those only, although torch has it on the CPU too.

    torchrun … fsdp_on_cpu.py SCRIPT [ARGUMENT …]
"""

import runpy
import sys

from accelerate.state import PartialState
from accelerate.utils import DistributedType

_init = PartialState.__init__


def init(self, *arguments, **options):
    _init(self, *arguments, **options)
    if self.distributed_type == DistributedType.MULTI_CPU:
        self.distributed_type = DistributedType.MULTI_GPU


PartialState.__init__ = init
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
