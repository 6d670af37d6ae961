"""The report's charts, made with Altair: each is a Vega-Lite specification over data that the page holds once.

A chart names its data (`gaps`, `nodes`, ...) and takes its colours from the page (`currentColor`), so one drawing serves light, dark and
print. What the page's filters set arrives as parameters of the same names. Charts of a thousand marks are hidden from screen readers,
which have the same numbers as a table below.
"""

from typing import Any

import altair as alt

from onnxproof.options import Policy
from onnxproof.report.page_data import LEAST

_GOOD, _BAD, _NOISE = "#3b7dd8", "#d1495b", "#8a8f98"
_FONT = "system-ui, -apple-system, Segoe UI, Roboto, sans-serif"
_SERIES = ["#3b7dd8", "#e08e2b", "#3f9b6e", "#a05cc0", "#c0504d", "#5f9ea0"]
_FILTERED = "(backend == '' || datum.backend == backend) && (group == '' || datum.group == group) && (verdict == '' || datum.verdict == verdict)"
_SHORT = "datum.value < 1 ? format(datum.value, '~g') : format(datum.value, '~s')"
_TOOLTIPS = {
    "case": "case",
    "group": "group",
    "backend": "backend",
    "output": "output",
    "said": "times the noise",
    "verdict": "verdict",
}


def heat(policy: Policy, rows: int) -> dict[str, Any]:
    """Cases by group and backend: the noise ratio as a colour that turns at the limit."""
    limit = policy.noise_limit
    colour = alt.Color(
        "shown:Q",
        title="times the noise",
        scale=alt.Scale(
            type="log",
            domain=[limit / 100, limit / 3, limit, limit * 3, limit * 1000],
            clamp=True,
            range=["#2166ac", "#92c5de", "#f4f1de", "#f4a582", "#b2182b"],
        ),
        legend=alt.Legend(
            orient="top",
            gradientLength=180,
            labelExpr=_SHORT,
            values=[limit / 100, limit, limit * 1000],
        ),
    )
    chart = (
        _chart("gaps")
        .mark_rect(aria=False, cursor="crosshair")
        .encode(
            x=alt.X(
                "place:Q",
                title="case within its group",
                scale=alt.Scale(nice=False, zero=False),
                axis=alt.Axis(grid=False, format="d", tickMinStep=1),
            ),
            x2="end:Q",
            y=alt.Y(
                "row:N",
                title=None,
                sort=alt.EncodingSortField("rank"),
                axis=alt.Axis(labelLimit=150, ticks=False, domain=False),
            ),
            color=colour,
            tooltip=_tooltips("case", "group", "backend", "output", "said", "verdict"),
        )
    )
    return _finish(
        chart.transform_filter(f"datum.top && {_FILTERED}").add_params(_zoom("x")), _high(rows, 18)
    )


def dims(policy: Policy) -> dict[str, Any]:
    """The noise ratio against the size of the dim that the page's list chooses."""
    picked = alt.param(name="dim", value=0)
    points = (
        _chart("gaps")
        .mark_point(aria=False, filled=True, size=45, opacity=0.65)
        .encode(
            x=alt.X(
                "size:Q",
                title="size of the dim",
                scale=alt.Scale(type="symlog"),
                axis=alt.Axis(tickMinStep=1, format="d"),
            ),
            y=_ratio("shown:Q"),
            color=_series("backend:N"),
            shape=alt.Shape("backend:N", title=None),
            tooltip=[
                alt.Tooltip("size:Q", title="size"),
                *_tooltips("case", "backend", "output", "said", "verdict"),
            ],
        )
    )
    points = (
        points.transform_filter(_FILTERED)
        .transform_calculate(size="datum.dims[dim]")
        .transform_filter("isValid(datum.size)")
    )
    return _finish(alt.layer(points.add_params(picked, _zoom("x", "y")), _limit(policy)), 240)


def histogram() -> dict[str, Any]:
    """How large the errors are, beside the noise that the reference itself has."""
    chart = (
        _chart("gaps")
        .transform_filter(_FILTERED)
        .transform_fold(["error", "noise"], as_=["what", "value"])
        .transform_filter("datum.value > 0")
    )
    chart = (
        chart.transform_calculate(decade="log(datum.value) / LN10")
        .mark_bar(opacity=0.6)
        .encode(
            x=alt.X(
                "decade:Q",
                bin=alt.Bin(step=0.25),
                title="size (rms), power of ten",
                axis=alt.Axis(tickMinStep=1, format="d", labelExpr="'1e' + datum.label"),
            ),
            y=alt.Y("count():Q", stack=None, title="outputs of cases"),
            color=alt.Color(
                "what:N",
                title=None,
                scale=alt.Scale(domain=["error", "noise"], range=[_BAD, _NOISE]),
                legend=alt.Legend(orient="top"),
            ),
            tooltip=[
                alt.Tooltip("what:N", title="what"),
                alt.Tooltip("count():Q", title="how many"),
                alt.Tooltip("decade:Q", bin=alt.Bin(step=0.25), title="power of ten"),
            ],
        )
    )
    return _finish(chart, 240)


def profile(policy: Policy, *, guilty: bool) -> dict[str, Any]:
    """The noise ratio along the graph, with the guilty nodes marked."""
    x = alt.X(
        "place:Q",
        title="node, in the order of the graph",
        scale=alt.Scale(nice=False, zero=False),
        axis=alt.Axis(format="d", tickMinStep=1),
    )
    shown = [
        ("node", "node"),
        ("op", "operator"),
        ("said", "times the noise"),
        ("module", "module"),
        ("line", "line"),
        ("text", "source"),
    ]
    tooltips = [alt.Tooltip(f"{field}:N", title=title) for field, title in shown]
    line = (
        _chart("nodes")
        .mark_line(color=_GOOD, strokeWidth=1.5, interpolate="step-after")
        .encode(x=x, y=_ratio("shown:Q"))
    )
    dots = (
        _chart("nodes")
        .mark_point(aria=False, filled=True, opacity=1, size=24, color=_GOOD)
        .encode(x=x, y=_ratio("shown:Q"), tooltip=tooltips)
    )
    layers = [line, dots.transform_filter("!datum.guilty").add_params(_zoom("x")), _limit(policy)]
    if guilty:  # above all others: in a long graph they would cover it
        marked = _chart("nodes").transform_filter("datum.guilty")
        layers.insert(1, marked.mark_rule(aria=False, color=_BAD, strokeDash=[4, 3]).encode(x=x))
        layers.append(
            marked.transform_filter("datum.first")
            .mark_text(color=_BAD, align="left", dx=8, dy=-8, fontWeight="bold", limit=220)
            .encode(x=x, y=_ratio("shown:Q"), text="node:N")
        )
        layers.append(
            marked.mark_point(filled=True, opacity=1, size=160, color=_BAD, shape="diamond").encode(
                x=x, y=_ratio("shown:Q"), tooltip=tooltips
            )
        )
    return _finish(alt.layer(*layers), 280)


def causes(policy: Policy, rows: int) -> dict[str, Any]:
    """Each cause that was tried: the error before, and with the cause taken away."""
    bars = (
        _chart("causes")
        .mark_bar()
        .encode(
            x=alt.X(
                "shown:Q", title="times the noise", scale=alt.Scale(type="log"), axis=_powers()
            ),
            x2=alt.datum(LEAST),
            y=alt.Y(
                "code:N",
                title=None,
                sort=alt.EncodingSortField("place"),
                axis=alt.Axis(labelLimit=150),
            ),
            yOffset=alt.YOffset("when:N", sort=["before", "after"]),
            color=alt.Color(
                "when:N",
                title=None,
                sort=["before", "after"],
                scale=alt.Scale(domain=["before", "after"], range=[_BAD, _GOOD]),
                legend=alt.Legend(orient="top"),
            ),
            tooltip=[
                alt.Tooltip("code:N", title="cause"),
                alt.Tooltip("when:N", title="when"),
                alt.Tooltip("said:N", title="times the noise"),
            ],
        )
    )
    return _finish(alt.layer(bars, _limit(policy, "x")), _high(rows, 14))


def waterfall(rows: int) -> dict[str, Any]:
    """Where the error of a quantized model comes from: the steps add up to all of it."""
    chart = (
        _chart("losses")
        .mark_bar(size=22)
        .encode(
            x=alt.X("from:Q", title="share of the error", axis=alt.Axis(format="%")),
            x2="to:Q",
            y=alt.Y(
                "name:N",
                title=None,
                sort=alt.EncodingSortField("place"),
                axis=alt.Axis(labelLimit=200),
            ),
            color=alt.condition("datum.share >= 0", alt.value(_BAD), alt.value(_GOOD)),
            tooltip=[
                alt.Tooltip("name:N", title="step"),
                alt.Tooltip("share:Q", title="share", format=".1%"),
                alt.Tooltip("recovers:N"),
                alt.Tooltip("then:N"),
            ],
        )
    )
    return _finish(chart, _high(rows, 28))


def ranges(rows: int) -> dict[str, Any]:
    """For each tensor the values on held-out data, and the range that was chosen."""
    y = alt.Y(
        "tensor:N", title=None, sort=alt.EncodingSortField("place"), axis=alt.Axis(labelLimit=200)
    )
    tooltips = [
        alt.Tooltip(f"{name}:Q", format=".4g")
        for name in ("low", "high", "chosen_low", "chosen_high")
    ]
    tooltips = [
        alt.Tooltip("tensor:N"),
        *tooltips,
        alt.Tooltip("clipped:Q", format=".3%"),
        alt.Tooltip("unused:Q", format=".0%"),
    ]
    seen = (
        _chart("ranges")
        .mark_bar(color=_NOISE, opacity=0.5, size=12)
        .encode(x=alt.X("low:Q", title="value"), x2="high:Q", y=y, tooltip=tooltips)
    )
    chosen = (
        _chart("ranges")
        .mark_bar(color=_GOOD, size=5)
        .encode(x="chosen_low:Q", x2="chosen_high:Q", y=y, tooltip=tooltips)
    )
    return _finish(alt.layer(seen, chosen), _high(rows, 20))


def matrices(rows: int) -> dict[str, Any]:
    """What each matrix costs, as long as its share; the more bits, the darker."""
    y = alt.Y(
        "matrix:N", title=None, sort=alt.EncodingSortField("place"), axis=alt.Axis(labelLimit=200)
    )
    tooltips = [
        alt.Tooltip("matrix:N"),
        alt.Tooltip("form:N"),
        alt.Tooltip("bits:Q", format=".2f"),
        alt.Tooltip("cost:Q", format=".3g"),
    ]
    bars = (
        _chart("matrices")
        .mark_bar(color=_NOISE)
        .encode(
            x=alt.X("cost:Q", title="cost"),
            y=y,
            opacity=alt.Opacity("bits:Q", legend=None),
            tooltip=tooltips,
        )
    )
    return _finish(alt.layer(bars), _high(rows, 16))


def front() -> dict[str, Any]:
    """Bytes against cost of every graph that was built."""
    tooltips = [
        alt.Tooltip("point:N"),
        alt.Tooltip("size:Q", format=","),
        alt.Tooltip("cost:Q", format=".3g"),
        alt.Tooltip("ms:Q", format=".3g"),
    ]
    points = (
        _chart("front")
        .mark_point(filled=True, size=80, color=_GOOD)
        .encode(
            x=alt.X("size:Q", title="bytes", scale=alt.Scale(zero=False)),
            y=alt.Y("cost:Q", title="cost"),
            opacity=alt.condition("datum.best", alt.value(1.0), alt.value(0.4)),
            tooltip=tooltips,
        )
    )
    return _finish(alt.layer(points), 180)


def _high(rows: int, each: int) -> int:
    return max(rows, 2) * each


def _chart(data: str) -> alt.Chart:
    return alt.Chart(alt.NamedData(name=data))


def _tooltips(*names: str) -> list[alt.Tooltip]:
    return [alt.Tooltip(f"{name}:N", title=_TOOLTIPS[name]) for name in names]


def _powers() -> alt.Axis:
    """An axis of ratios: a line at each power of ten."""
    return alt.Axis(
        values=[10.0**power for power in range(-2, 10)], labelExpr=_SHORT, labelOverlap=True
    )


def _ratio(field: str) -> alt.Y:
    return alt.Y(field, title="times the noise", scale=alt.Scale(type="log"), axis=_powers())


def _series(field: str) -> alt.Color:
    return alt.Color(
        field, title=None, scale=alt.Scale(range=_SERIES), legend=alt.Legend(orient="top")
    )


def _limit(policy: Policy, axis: str = "y") -> alt.Chart:
    """The line beyond which rounding does not explain it."""
    where: dict[str, Any] = {axis: alt.datum(policy.noise_limit)}
    line: alt.Chart = (
        alt.Chart(alt.InlineData(values=[{}]))
        .mark_rule(aria=False, color=_BAD, strokeDash=[2, 2], opacity=0.8)
        .encode(**where)
    )
    return line


def _zoom(*axes: Any) -> alt.Parameter:
    """Drag to move, Shift and the wheel to zoom (the wheel alone scrolls the page), double-click to see all again."""
    return alt.selection_interval(
        name="zoom", bind="scales", encodings=list(axes), zoom="wheel![event.shiftKey]"
    )


def _finish(chart: Any, height: int) -> dict[str, Any]:
    """As wide as the page gives, in the page's own colours and font."""
    filters = [alt.param(name=name, value="") for name in ("backend", "group", "verdict")]
    chart = chart.properties(
        width="container",
        height=height,
        autosize=alt.AutoSizeParams(type="fit-x", contains="padding"),
    ).add_params(*filters)
    text: dict[str, Any] = {"labelColor": "currentColor", "titleColor": "currentColor"}
    chart = (
        chart.configure(background="transparent", font=_FONT)
        .configure_view(stroke=None)
        .configure_legend(**text)
        .configure_axis(
            **text,
            domainColor="currentColor",
            tickColor="currentColor",
            gridColor="currentColor",
            gridOpacity=0.12,
            domainOpacity=0.4,
            tickOpacity=0.4,
            titleFontWeight="normal",
        )
    )
    spec: dict[str, Any] = chart.to_dict()
    return {key: value for key, value in spec.items() if key != "$schema"}
