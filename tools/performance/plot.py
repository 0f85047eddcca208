"""Bars for the rows of a group, or dots on a logarithmic axis, as SVG."""

import math
from html import escape

from baselines import Group

GREY, BLUE, ORANGE, GREEN = "#8a97a3", "#1f5f8b", "#c8641b", "#3f7f3a"
# What is compared with is grey; a transport has one colour on the whole page.
COLOURS = {"native": GREY, "plain": GREY, "iperf": GREY, "shm": BLUE, "tcp": ORANGE}
OTHERS = [BLUE, ORANGE, GREEN]
LABEL_WIDTH = 300
PLOT_WIDTH = 420
VALUE_WIDTH = 110
BAR = 14
ROW_GAP = 10
HEAD = 58

STYLE = """
  text { font: 12px system-ui, "Segoe UI", "DejaVu Sans", sans-serif; fill: #1b2530 }
  .title { font-size: 15px; font-weight: 600 }
  .quiet { fill: #50606f }
  .axis { stroke: #9fb0bf }
  .grid { stroke: #e3e9ee }
  .base { stroke: #1b2530; stroke-dasharray: 4 3 }
"""


def colours(group: Group) -> dict[str, str]:
    """The colour of each series."""
    left = [colour for colour in OTHERS if colour not in (COLOURS.get(name) for name in group.series)]
    return {name: COLOURS[name] if name in COLOURS else left.pop(0) for name in group.series}


class Scale:
    """From a number to a place between 0 and 1, and the numbers that the axis names."""

    def __init__(self, kind: str, numbers: list[float]):
        self.log = kind == "log"
        if self.log:
            if min(numbers) <= 0:
                raise ValueError("a logarithmic axis needs numbers above zero")
            self.low = math.floor(math.log10(min(numbers)) - 1e-9)
            self.high = math.ceil(math.log10(max(numbers)) + 1e-9)
            self.ticks = [10.0**power for power in range(self.low, self.high + 1)]
        else:
            step = nice_step(max(*numbers, 0) - min(*numbers, 0))
            self.low = math.floor(min(*numbers, 0) / step) * step
            self.high = math.ceil(max(*numbers, 0) / step) * step
            self.ticks = [self.low + step * index for index in range(round((self.high - self.low) / step) + 1)]

    def place(self, number: float) -> float:
        """Where a number is."""
        value = math.log10(number) if self.log else number
        return (value - self.low) / (self.high - self.low)

    @property
    def zero(self) -> float:
        """Where bars begin."""
        return 0.0 if self.log else self.place(0)


def nice_step(span: float) -> float:
    """A distance of 1, 2 or 5 times a power of ten, of which four to eight make the span."""
    power = 10.0 ** math.floor(math.log10(span or 1))
    for factor in (0.1, 0.2, 0.5, 1, 2):
        if span / (power * factor) <= 7:
            return power * factor
    return power * 5


def draw(group: Group) -> str:
    """The picture of a group."""
    numbers = [measurement.middle for row in group.rows for measurement in row.measurements.values()]
    scale = Scale(group.scale, numbers + ([group.base] if group.base else []))
    width = LABEL_WIDTH + PLOT_WIDTH + VALUE_WIDTH
    heights = [BAR * len(row.measurements) + ROW_GAP for row in group.rows]
    bottom = HEAD + sum(heights)

    def x(number: float) -> float:
        return LABEL_WIDTH + PLOT_WIDTH * scale.place(number)

    shapes = [f'<text class="title" x="12" y="22">{escape(group.title)}, {escape(group.unit)}</text>']
    left = 12.0
    colour = colours(group)
    for name, title in group.series.items():
        shapes.append(f'<rect x="{left:g}" y="33" width="12" height="12" fill="{colour[name]}"/>')
        shapes.append(f'<text class="quiet" x="{left + 17:g}" y="43">{escape(title)}</text>')
        left += 40 + 6.6 * len(title)
    direction = {"higher": "more is better", "lower": "less is better"}[group.better]
    shapes.append(f'<text class="quiet" x="{width - 12}" y="43" text-anchor="end">{direction}</text>')
    for tick in scale.ticks:
        shapes.append(f'<path class="grid" d="M{x(tick):g} {HEAD - 4}V{bottom}"/>')
        shapes.append(f'<text class="quiet" x="{x(tick):g}" y="{bottom + 16}" text-anchor="middle">{tick:g}</text>')

    y = float(HEAD)
    start = LABEL_WIDTH + PLOT_WIDTH * scale.zero
    for row, height in zip(group.rows, heights):
        middle = y + (height - ROW_GAP) / 2 + 4
        shapes.append(f'<text x="{LABEL_WIDTH - 8}" y="{middle:g}" text-anchor="end">{escape(row.what)}</text>')
        for name in group.series:
            if name not in row.measurements:
                continue
            measurement = row.measurements[name]
            end = x(measurement.middle)
            if scale.log:
                # A bar's length says nothing where the axis has no zero.
                shapes.append(f'<circle cx="{end:g}" cy="{y + BAR / 2:g}" r="{BAR / 3:g}" fill="{colour[name]}"/>')
            else:
                box = f'x="{min(start, end):g}" y="{y + 1:g}" width="{max(abs(end - start), 1):g}" height="{BAR - 2}"'
                shapes.append(f'<rect {box} fill="{colour[name]}"/>')
            shapes.append(f'<text class="quiet" x="{max(start, end) + BAR / 2:g}" y="{y + 11:g}">{escape(measurement.text)}</text>')
            y += BAR
        y += ROW_GAP
    shapes.append(f'<path class="axis" d="M{start:g} {HEAD - 4}V{bottom}"/>')
    if group.base:
        shapes.append(f'<path class="base" d="M{x(group.base):g} {HEAD - 4}V{bottom}"/>')
    height = bottom + 26
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
            f'viewBox="0 0 {width} {height}" role="img">',
            f"<title>{escape(group.title)}</title>",
            f"<style>{STYLE}</style>",
            f'<rect width="{width}" height="{height}" rx="8" fill="#ffffff"/>',
            *shapes,
            "</svg>",
            "",
        ]
    )
