"""Draws sequence diagrams as SVG: a few shapes, text in the reader's own sans-serif font, no other file."""

from html import escape

from sequence import Diagram, Divider, Message, Note

LANE_WIDTH = 190
MARGIN = 20
HEAD_HEIGHT = 44
LINE_HEIGHT = 16
GAP = 14
CHARACTER = 6.4  # the mean width of a character of 12 px, on the safe side

STYLE = """
  text { font: 12px system-ui, "Segoe UI", "DejaVu Sans", sans-serif; fill: #1b2530 }
  .title { font-size: 15px; font-weight: 600 }
  .head { font-weight: 600 }
  .said { paint-order: stroke; stroke: #ffffff; stroke-width: 4px }
  .quiet { fill: #50606f; font-style: italic }
  .lane { stroke: #9fb0bf; stroke-dasharray: 3 4 }
  .box { fill: #e8f0f7; stroke: #5b7f9d }
  .note { fill: #fff6dc; stroke: #d2b45c }
  .call, .answer, .bulk { fill: none; stroke: #1f5f8b; stroke-width: 1.4 }
  .answer { stroke-dasharray: 6 4 }
  .bulk { stroke: #a2480d; stroke-width: 4 }
  .divider { stroke: #9fb0bf }
"""


def wrapped(text: str, width: float) -> list[str]:
    """The lines of a text that is to fit into so many pixels; a word that does not is a line of its own."""
    most = max(int(width / CHARACTER), 1)
    lines: list[str] = []
    for part in text.split("|"):
        line = ""
        for word in part.split():
            if line and len(line) + 1 + len(word) > most:
                lines.append(line)
                line = word
            else:
                line = f"{line} {word}".strip()
        lines.append(line)
    return lines


class Drawing:
    """A drawing that grows downwards."""

    def __init__(self, diagram: Diagram):
        self.diagram = diagram
        self.width = max(2 * MARGIN + LANE_WIDTH * len(diagram.lanes), 2 * MARGIN + 8.2 * len(diagram.title))
        self.shapes: list[str] = []
        self.y = float(MARGIN)

    def lane(self, index: int) -> float:
        """Where a lane's line is."""
        return MARGIN + LANE_WIDTH * (index + 0.5)

    def text(self, lines: list[str], x: float, y: float, style: str = "", anchor: str = "middle") -> None:
        """Writes lines whose first one has its base line at `y`."""
        kind = f' class="{style}"' if style else ""
        for number, line in enumerate(lines):
            at = y + number * LINE_HEIGHT
            self.shapes.append(f'<text x="{x:g}" y="{at:g}" text-anchor="{anchor}"{kind}>{escape(line)}</text>')

    def box(self, left: float, width: float, height: float, style: str, radius: int = 4) -> None:
        """A rectangle at the height that has been reached."""
        self.shapes.append(
            f'<rect class="{style}" x="{left:g}" y="{self.y:g}" width="{width:g}" height="{height:g}" rx="{radius}"/>'
        )

    def heads(self) -> None:
        """The title, and what stands above each lane."""
        self.text([self.diagram.title], self.width / 2, self.y + 12, "title")
        self.y += 30
        for index, name in enumerate(self.diagram.lanes):
            self.box(self.lane(index) - LANE_WIDTH / 2 + 8, LANE_WIDTH - 16, HEAD_HEIGHT, "box", 6)
            lines = wrapped(name, LANE_WIDTH - 28)
            top = self.y + HEAD_HEIGHT / 2 + 4 - (len(lines) - 1) * LINE_HEIGHT / 2
            self.text(lines, self.lane(index), top, "head")
        self.y += HEAD_HEIGHT + GAP

    def message(self, step: Message) -> None:
        """An arrow with its text above; one that leads back to its own lane is a note."""
        if step.source == step.target:
            self.note(Note(step.source, step.target, step.text))
            return
        start, end = self.lane(step.source), self.lane(step.target)
        lines = wrapped(step.text, abs(end - start) - 16)
        self.text(lines, (start + end) / 2, self.y + 12, "said")
        self.y += len(lines) * LINE_HEIGHT + 6
        inset = 7 if step.kind == "bulk" else 2
        tip = end - inset if end > start else end + inset
        self.shapes.append(
            f'<path class="{step.kind}" d="M{start:g} {self.y:g}H{tip:g}" marker-end="url(#{step.kind}-tip)"/>'
        )
        self.y += GAP

    def note(self, step: Note) -> None:
        """A box with a text, over its lanes."""
        left = self.lane(step.first) - LANE_WIDTH / 2 + 10
        width = self.lane(step.last) + LANE_WIDTH / 2 - 10 - left
        lines = wrapped(step.text, width - 14)
        height = len(lines) * LINE_HEIGHT + 8
        self.box(left, width, height, "note")
        self.text(lines, left + width / 2, self.y + 16)
        self.y += height + GAP

    def divider(self, step: Divider) -> None:
        """A line from side to side."""
        self.y += 4
        self.shapes.append(f'<path class="divider" d="M{MARGIN} {self.y:g}H{self.width - MARGIN:g}"/>')
        self.text([step.text], MARGIN, self.y + 15, "quiet", "start")
        self.y += 15 + GAP

    def draw(self) -> str:
        """All of it."""
        self.heads()
        top = self.y - GAP
        for step in self.diagram.steps:
            match step:
                case Message():
                    self.message(step)
                case Note():
                    self.note(step)
                case Divider():
                    self.divider(step)
        lanes = [
            f'<path class="lane" d="M{self.lane(index):g} {top:g}V{self.y:g}"/>'
            for index in range(len(self.diagram.lanes))
        ]
        height = self.y + MARGIN
        size = f'width="{self.width:g}" height="{height:g}" viewBox="0 0 {self.width:g} {height:g}"'
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">',
                f"<title>{escape(self.diagram.title)}</title>",
                f"<style>{STYLE}</style>",
                "<defs>",
                tip("call", "#1f5f8b", 7),
                tip("answer", "#1f5f8b", 7),
                tip("bulk", "#a2480d", 3.2),
                "</defs>",
                f'<rect width="{self.width:g}" height="{height:g}" rx="8" fill="#ffffff"/>',
                *lanes,
                *self.shapes,
                "</svg>",
                "",
            ]
        )


def tip(name: str, colour: str, size: float) -> str:
    """The head of an arrow, in widths of its line."""
    return (
        f'<marker id="{name}-tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="{size:g}" '
        f'markerHeight="{size:g}" orient="auto"><path d="M0 0L8 4L0 8z" fill="{colour}"/></marker>'
    )


def draw(diagram: Diagram) -> str:
    """The SVG of a diagram."""
    return Drawing(diagram).draw()
