"""Session: a run that stops between layers, goes back, and can be changed on the way."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd

from mlinspect import ir
from mlinspect.errors import InputError
from mlinspect.execute.conditions import Condition, Result, conditions, real_values
from mlinspect.execute.control import Jump
from mlinspect.execute.engine import Program, Routine, Step, advance, as_tuple, call_target
from mlinspect.execute.ports import output_names
from mlinspect.execute.programs import Programs
from mlinspect.execute.registry import Call
from mlinspect.execute.trace import Trace
from mlinspect.execute.values import numpy_dtype, quantize_array

KEEP_BYTES = 512 << 20
