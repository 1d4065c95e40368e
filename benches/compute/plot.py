"""A plot of the ratios to LiteRT, as SVG."""

import dataclasses
from xml.sax.saxutils import escape

WIDTH = 1000
MARGIN = 10
TOP = 66
BAR = 13
GAP = 8
# What a letter of a name takes, about, and the ratio behind a bar at most.
LETTER = 7.4
RATIO = 40
# The ratios up to which there is always room, and the greatest that is drawn to scale.
LEAST, MOST = 1.1, 3.0
# For one thread, for two and so on: where nnhal is faster, and where it is not.
COLOURS = [("#2a7f62", "#b5651d"), ("#7cc0a8", "#e0a871"), ("#b9ddd0", "#f0d2b5")]


@dataclasses.dataclass(frozen=True)
class Series:
    """The ratios with some number of threads, by model."""

    threads: int
    ratios: dict
    colours: tuple


@dataclasses.dataclass(frozen=True)
class Scale:
    """Where bars begin, and how long that of a ratio of 1 is."""

    left: float
    unit: float

    @classmethod
    def of(cls, rows):
        left = MARGIN + LETTER * max((len(row["model"]) for row in rows), default=0)
        extent = max([LEAST, *(min(row["ratio_litert"], MOST) for row in rows)])
        return cls(left, (WIDTH - MARGIN - RATIO - left) / extent)


def all_series(rows):
    """A series for each number of threads."""
    found = []
    for number, threads in enumerate(sorted({row["threads"] for row in rows})):
        ratios = {row["model"]: row["ratio_litert"] for row in rows if row["threads"] == threads}
        found.append(Series(threads, ratios, COLOURS[number % len(COLOURS)]))
    return found


def text(x, y, content, **attributes):
    style = "".join(f' {name.replace("_", "-")}="{value}"' for name, value in attributes.items())
    return f'<text x="{x:.1f}" y="{y:.1f}"{style}>{escape(content)}</text>'


def box(x, y, width, colour):
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{BAR - 1}" fill="{colour}"/>'


def bar(scale, y, ratio, colours):
    """A bar with its ratio behind it; one that is too long ends at the greatest that is drawn."""
    width = min(ratio, MOST) * scale.unit
    colour = colours[0] if ratio <= 1 else colours[1]
    return [
        box(scale.left, y, width, colour),
        text(scale.left + width + 5, y + BAR - 3, f"{ratio:.2f}", font_size=11),
    ]


def legend(series):
    """Which colours are of how many threads."""
    parts = []
    for number, one in enumerate(series):
        x = MARGIN + 120 * number
        parts += [box(x + 13 * place, 34, 12, colour) for place, colour in enumerate(one.colours)]
        parts.append(text(x + 31, 44, "1 thread" if one.threads == 1 else f"{one.threads} threads"))
    return parts


def limit(scale, height):
    """The line where both take as long."""
    x = scale.left + scale.unit
    return [
        f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{TOP - 6}" y2="{height - 12}" stroke="black" stroke-dasharray="4 3"/>',
        text(x, TOP - 9, "1", text_anchor="middle", font_size=11),
    ]


def bars(scale, series, models):
    """The models below each other, each with a bar of every series."""
    parts = []
    step = BAR * len(series) + GAP
    for number, model in enumerate(models):
        top = TOP + step * number
        parts.append(text(scale.left - 8, top + (step - GAP) / 2 + 4, model, text_anchor="end"))
        for place, one in enumerate(series):
            if model in one.ratios:
                parts += bar(scale, top + BAR * place, one.ratios[model], one.colours)
    return parts


def plot(rows):
    """The ratio of each row that has one, side by side for the numbers of threads."""
    rows = [row for row in rows if row["ratio_litert"] is not None]
    scale, series = Scale.of(rows), all_series(rows)
    models = list(dict.fromkeys(row["model"] for row in rows))
    height = TOP + (BAR * len(series) + GAP) * len(models) + 16
    title = "Time of nnhal through its driver / the faster LiteRT + XNNPACK in process; below 1 nnhal is faster"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" font-family="sans-serif" '
        'font-size="13">',
        '<rect width="100%" height="100%" fill="white"/>',
        text(MARGIN, 22, title, font_size=15),
        *legend(series),
        *bars(scale, series, models),
        *limit(scale, height),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"
