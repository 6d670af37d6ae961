"""Text that came from a file, as it may be shown: the one place through which names, messages and values leave.

A terminal obeys escape sequences, a workflow's log obeys lines that begin with `::`, a right-to-left mark turns the text
around it, and Markdown makes links. So each character that would act instead of showing is written as its code.
"""

import re

_BIDI = "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
_UNSEEN = (
    "\u2028\u2029\u2060-\u2065\ufeff\ufff9-\ufffb\ufffe\uffff\U000e0000-\U000e007f\ud800-\udfff"
)
_ODD = re.compile(f"[\x00-\x1f\x7f-\x9f{_BIDI}{_UNSEEN}]|(?<=##)\\[")
"""Control characters, line breaks too; what turns or hides text; and `##[`, with which a workflow command begins anywhere in a line."""
_MARKUP = "\\`*_[]<>|~$&"
_CONTINUED = "  | "
_COMMAND = re.compile(r"^(\s*)::")


def visible(text: str) -> str:
    r"""The text on one line, with every character that would act instead of showing written as its code.

    >>> visible("a\x1b[31mb\u202ec\n::error::d")
    'a<U+001B>[31mb<U+202E>c<U+000A>::error::d'
    """
    return _ODD.sub(lambda found: f"<U+{ord(found[0]):04X}>", text)


def lines(text: str) -> str:
    r"""The visible text with its line breaks kept; no line but the first begins with the text's own characters.

    >>> print(lines("torch says:\n::error::no"))
    torch says:
      | ::error::no
    """
    if "\n" not in text and "\t" not in text:
        return visible(text)
    shown = [visible(line.replace("\t", "    ")) for line in text.splitlines()]
    return f"\n{_CONTINUED}".join(shown)


def block(text: str) -> str:
    r"""Text of several lines that are kept as they are, but for what would act; none of them begins a workflow command.

    >>> print(block("error: no\n  ::error::no"))
    error: no
      <U+003A>:error::no
    """
    return "\n".join(
        _COMMAND.sub(r"\1<U+003A>:", visible(line.replace("\t", "    ")))
        for line in text.splitlines()
    )


def markdown(text: str) -> str:
    r"""Text that stays text in Markdown: no markup, no mention, no link, no line break.

    >>> print(markdown("a|b <script> *c*"))
    a\|b \<script\> \*c\*
    """
    escaped = "".join(f"\\{c}" if c in _MARKUP else c for c in visible(text))
    if escaped.startswith(("#", "+", "-", "=", ":")):  # these act at the beginning of a line
        escaped = f"\\{escaped}"
    # A backslash stops neither a mention nor a bare link.
    return escaped.replace("@", "@<!-- -->").replace("://", ":<!-- -->//")


def code(text: str) -> str:
    r"""A name in Markdown as code, which nothing inside can end; in a table, too.

    >>> print(code("conv_1"), code("a`b|c"))
    `conv_1` `` a`b\|c ``
    """
    shown = visible(text).replace("|", "\\|")
    if "`" not in shown:
        return f"`{shown}`"
    fence = "`" * (max(map(len, re.findall("`+", shown))) + 1)
    return f"{fence} {shown} {fence}"


def prose(text: str) -> str:
    r"""A sentence of ours in Markdown: what it sets between backticks stays code, and nothing else is markup.

    >>> print(prose("set `alpha` of *x*"))
    set `alpha` of \*x\*
    """
    parts = visible(text).split("`")
    if len(parts) % 2 == 0:
        return markdown(text)
    return "".join(code(part) if place % 2 else markdown(part) for place, part in enumerate(parts))
