"""A proof as one HTML file that opens offline: charts by Vega-Lite, whose scripts are in the file; no request leaves it.

Everything from a model or a file is escaped by the template. A content policy in the page lets nothing run but the two scripts
that were written here, by their hashes, and lets nothing be loaded.
"""

import base64
import hashlib
import json
import re
from collections.abc import Sequence
from functools import cache
from importlib import resources, util
from pathlib import Path
from typing import Any

from onnxproof.errors import UsageError
from onnxproof.report import consensus_table, page_data, rollout_table, text_pairs
from onnxproof.report.plain import LONGEST, block, brief, ratio, relative, short
from onnxproof.report.rows import column_titles, facts, last_column, numbers, place, rows
from onnxproof.results import Verdict, judging
from onnxproof.results.proof import Proof
from onnxproof.system.writing import write_text

NEEDED = ("altair", "vl_convert", "jinja2")


def write(proof: Proof, path: str | Path) -> None:
    """Write the report; the file appears whole or not at all."""
    write_text(dumps(proof), path)


def check() -> None:
    """Say what is missing before the work begins."""
    missing = [name for name in NEEDED if util.find_spec(name) is None]
    if missing:
        raise UsageError(
            "html-missing",
            f"the HTML report needs packages that are not installed: {', '.join(missing)}",
            help="pip install 'onnxproof[html]'",
        )


def dumps(proof: Proof) -> str:
    """The report of one proof."""
    return page([proof])


def failure(error: str) -> str:
    """The report of a run that ended before anything was measured."""
    return _render([], title="onnxproof: error", error=block(error))


def page(proofs: Sequence[Proof], *, title: str = "") -> str:
    """The report of several proofs, with an index when there are more than one."""
    if not title and len(proofs) == 1:
        title = f"onnxproof: {short(Path(proofs[0].candidate).name, 60)}"
    articles = [_article(proof, f"proof-{number}") for number, proof in enumerate(proofs)]
    return _render(articles, title=title or f"onnxproof: {len(proofs)} proofs")


def _article(proof: Proof, name: str) -> dict[str, Any]:
    """What the template needs of one proof."""
    data = page_data.data(proof)
    return {
        "id": name,
        "proof": proof,
        "worst": _worst(proof),
        "rows": [(row, numbers(row.worst)) for row in rows(proof)],
        "facts": facts(proof),
        "last": last_column(proof),
        "columns": column_titles(proof),
        "where": place(proof),
        "cross": _cross(proof),
        "rollouts": [rollout_table.cells(rollout) for rollout in proof.rollouts],
        "rollout_columns": rollout_table.COLUMNS,
        "curves": rollout_table.curves(proof),
        "texts": [text_pairs.row(pair) for pair in proof.texts],
        "dims": page_data.dims(proof),
        "choices": page_data.choices(proof),
        "data": data,
        "charts": _charts(proof, data),
        "level": _level(proof),
    }


def _level(proof: Proof) -> str:
    """The class by which the page colours a proof."""
    if not proof.passed:
        return "fail"
    return "pass" if proof.verdict is Verdict.FAITHFUL else "warn"


def _worst(proof: Proof) -> str:
    """The number of a proof in the index: decibels for a quantized model, the noise ratio for others."""
    level = proof.quality()
    if level is not None:
        return judging.level_words(level)
    if proof.worst:
        return f"{ratio(proof.worst.noise_ratio)} × noise"
    return ""


def _cross(proof: Proof) -> dict[str, Any]:
    """The backends beside each other; empty for a lone one."""
    if proof.cross is None:
        return {}
    return {
        "outputs": consensus_table.outputs(proof.cross),
        "lines": consensus_table.lines(proof.cross),
        "words": consensus_table.words(proof.cross),
    }


def _charts(proof: Proof, data: dict[str, Any]) -> dict[str, Any]:
    """The specifications of those charts for which there is data."""
    from onnxproof.report import charts

    policy = proof.policy
    specs: dict[str, Any] = {}
    if "gaps" in data:
        specs["heat"] = charts.heat(policy, _count(data["gaps"]["row"]))
        specs["histogram"] = charts.histogram()
        if page_data.dims(proof):
            specs["dims"] = charts.dims(policy)
    if "nodes" in data:
        specs["profile"] = charts.profile(policy, guilty=any(data["nodes"]["guilty"]))
    if "causes" in data:
        specs["causes"] = charts.causes(policy, 2 * _count(data["causes"]["code"]))
    if "losses" in data:
        specs["losses"] = charts.waterfall(_count(data["losses"]["name"]))
    if "ranges" in data:
        specs["ranges"] = charts.ranges(_count(data["ranges"]["tensor"]))
    if "matrices" in data:
        specs["matrices"] = charts.matrices(_count(data["matrices"]["matrix"]))
    if "front" in data:
        specs["front"] = charts.front()
    return specs


def _count(column: Any) -> int:
    """How many different values a column has."""
    values = column["values"] if isinstance(column, dict) else set(column)
    return len(values)


def _render(articles: Sequence[dict[str, Any]], *, title: str, error: str = "") -> str:
    import jinja2
    from markupsafe import Markup

    check()
    folder = resources.files("onnxproof.report") / "page"
    own = (folder / "report.js").read_text(encoding="utf-8")
    library = chart_library() if articles else ""
    environment = jinja2.Environment(
        autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined
    )
    environment.filters |= {
        "name": short,
        "ratio": ratio,
        "text": block,
        "line": lambda source: page_data.source_line(source.file, source.line),
        "json": script_json,
        "sentence": _mark_code,
        "brief": brief,
        "file": lambda path: str(relative(path)),
    }
    template = environment.from_string((folder / "report.html.jinja").read_text(encoding="utf-8"))
    return template.render(
        articles=articles,
        title=title,
        error=error,
        css=Markup((folder / "report.css").read_text(encoding="utf-8")),
        own=Markup(own),
        library=Markup(library),
        hashes=[script_hash(text) for text in (library, own) if text],
    )


def script_json(value: Any) -> Any:
    """JSON for a script element: no `<` in it, so nothing in it can end the element."""
    from markupsafe import Markup

    text = json.dumps(value, separators=(",", ":"), allow_nan=False, ensure_ascii=True)
    return Markup(text.replace("<", "\\u003c"))


def _mark_code(text: str, longest: int = LONGEST) -> Any:
    """Words in which `names` stand as code; everything is escaped before that."""
    from markupsafe import Markup, escape

    escaped = str(escape(short(text, longest)))
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", escaped))


def script_hash(script: str) -> str:
    """The word by which a content policy allows this script."""
    digest = hashlib.sha256(script.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


@cache
def chart_library() -> str:
    """Vega, Vega-Lite and Vega-Embed as one script, from the package that carries them."""
    import vl_convert

    bundle: Any = vl_convert.javascript_bundle  # its stub asks for a snippet that its code does not
    script = str(bundle())
    if "</script" in script.lower():
        raise UsageError(
            "bad-bundle",
            "the charts' script can't be put into a page",
            help="install the vl-convert-python that constraints.txt names",
        )
    return script
