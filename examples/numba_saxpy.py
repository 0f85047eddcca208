"""Numba: a kernel in Python, arrays on the GPU, and a sum by atomic operations."""

import numpy as np
from numba import cuda


@cuda.jit
def saxpy(a, x, y):
    i = cuda.grid(1)
    if i < x.size:
        y[i] = a * x[i] + y[i]


@cuda.jit
def add_up(values, total):
    i = cuda.grid(1)
    if i < values.size:
        cuda.atomic.add(total, 0, values[i])


x = np.arange(100_000, dtype=np.float32)
y = np.ones_like(x)
on_device = cuda.to_device(y)
total = cuda.to_device(np.zeros(1, dtype=np.float64))
blocks = (x.size + 255) // 256
saxpy[blocks, 256](np.float32(2), cuda.to_device(x), on_device)
add_up[blocks, 256](on_device, total)

assert np.array_equal(on_device.copy_to_host(), 2 * x + y)
print(f"{cuda.get_current_device().name}: {x.size} numbers, whose sum is {total.copy_to_host()[0]:.0f}")
