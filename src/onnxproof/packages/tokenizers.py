"""Does the folder's tokenizer give the model's ids? Its files are compared by hash, and where they differ both are tried on 200 strings."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onnxproof.results import Finding
from onnxproof.system.text import visible
from onnxproof.system.user_files import is_regular

FILES = (
    "tokenizer.json",
    "tokenizer.model",
    "spiece.model",
    "sentencepiece.bpe.model",
    "source.spm",
    "target.spm",
    "vocab.json",
    "merges.txt",
    "vocab.txt",
    "added_tokens.json",
    "special_tokens_map.json",
    "tokenizer_config.json",
)
"""The files of a tokenizer, those that hold its vocabulary first."""
_TEXTS = (
    "The quick brown fox jumps over the lazy dog.",
    "Don't we all? It's 5 o'clock, isn't it...",
    "Größe, Maß und Übermut im Straßenbild",
    "L'été dernier, où étiez-vous ? À Nîmes, peut-être.",
    "¿Dónde está el niño? ¡Mañana volverá!",
    "Não há pão nem maçã no almoço de domingo",
    "Zażółć gęślą jaźń",
    "Příliš žluťoučký kůň úpěl ďábelské ódy",
    "İstanbul'da ılık bir akşam, ığdır",
    "Съешь ещё этих мягких французских булок",
    "Щедрий вечір, їжаче!",
    "Ξεσκεπάζω την ψυχοφθόρα βδελυγμία",
    "שלום עולם, מה שלומך?",
    "مرحبا بالعالم، كيف حالك اليوم؟",
    "नमस्ते दुनिया, आप कैसे हैं?",
    "สวัสดีชาวโลก วันนี้อากาศดี",
    "今日は天気がいいですね。散歩しましょう！",
    "我能吞下玻璃而不伤身体。",
    "안녕하세요, 오늘 날씨가 좋네요",
    "Xin chào thế giới, hôm nay thế nào?",
    "🙂👩‍👩‍👧‍👦🏳️‍🌈👍🏽 emoji 🚀",
    "3.14159 2,718.28 1e-9 0x1F 1/2 50%",
    "2024-02-29T23:59:59Z +49 30 1234567",
    "12345678901234567890",
    "def f(x):\n\treturn x ** 2  # square\n",
    '{"key": [1, 2, {"a": null}], "b": "c\\n"}',
    "<div class='a'>&amp; &lt;b&gt;</div>",
    "https://example.org/a?b=c&d=%20#e user@example.org",
    "  two  spaces   and\ttabs\t\t",
    "line\nbreaks\r\nof\n\n\nall kinds",
    "\u00a0no-break\u2009thin\u3000wide\u200bzero",
    "ｆｕｌｌ ｗｉｄｔｈ ﬁ ligature ² ½ ①",
    "e\u0301 a\u0308 combining, é ä composed",
    "ALL CAPS and MiXeD cAsE",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "!?.,;:-_()[]{}<>/\\|@#$%^&*~`+=",
    "“curly” ‘quotes’ — dashes – and … ellipsis",
    "antidisestablishmentarianism floccinaucinihilipilification",
    "",
    "   ",
)
_VARIANTS: tuple[Callable[[str], str], ...] = (
    lambda text: text,
    lambda text: f" {text}",
    lambda text: f"{text.upper()} X",
    lambda text: f"{text}\n{text[:7]} 42",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenizerCheck:
    """What was found, and the file that is guilty of it."""

    findings: tuple[Finding, ...] = ()
    guilty: str | None = None


def compare(own: Path, deployed: Path) -> TokenizerCheck:
    """The tokenizer of the reference's folder beside that of the ONNX folder; one without a tokenizer has nothing to compare."""
    files = [name for name in FILES if is_regular(own / name) and is_regular(deployed / name)]
    differ = [name for name in files if _hash(own / name) != _hash(deployed / name)]
    if not differ:
        return TokenizerCheck()
    try:
        pair = _load(own), _load(deployed)
    except Exception as why:  # transformers raises whatever a damaged file leads to
        return _unread(differ[0], why)
    texts = strings(pair[0])
    apart = [text for text in texts if _ids(pair[0], text) != _ids(pair[1], text)]
    if not apart:
        return TokenizerCheck(findings=(_other_bytes(differ, len(texts)),))
    return TokenizerCheck(
        findings=(_other_ids(differ[0], pair, apart, len(texts)),), guilty=differ[0]
    )


def strings(tokenizer: Any) -> list[str]:
    """200 strings: languages, spaces, emoji, numbers, code, and the tokenizer's own special tokens between words."""
    texts = [variant(text) for variant in _VARIANTS for text in _TEXTS]
    special = [str(token) for token in getattr(tokenizer, "all_special_tokens", [])] or ["</s>"]
    most = 200 - len(texts)
    for number in range(most):
        token = special[number % len(special)]
        texts.append(f"{_TEXTS[number % len(_TEXTS)][:12]}{token} word {number}")
    return texts


def _load(folder: Path) -> Any:
    import transformers

    return transformers.AutoTokenizer.from_pretrained(
        folder, local_files_only=True, trust_remote_code=False
    )


def _ids(tokenizer: Any, text: str) -> list[int]:
    return list(tokenizer(text)["input_ids"])


def _hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _other_ids(file: str, pair: tuple[Any, Any], apart: Sequence[str], count: int) -> Finding:
    text = min(apart, key=len)
    ids = [_ids(tokenizer, text)[:8] for tokenizer in pair]
    return Finding(
        code="tokenizer",
        what=f"{file} gives other ids for {len(apart)} of {count} strings: {visible(repr(text[:40]))} is {ids[1]}, and {ids[0]} for the model",
        help="copy the tokenizer's files from the model's folder",
        counts=True,
    )


def _other_bytes(differ: Sequence[str], count: int) -> Finding:
    return Finding(
        code="tokenizer-files",
        what=f"{', '.join(differ)} differ from the model's own, and {count} strings become the same ids with both",
    )


def _unread(file: str, why: Exception) -> TokenizerCheck:
    reason = " ".join(str(why).split())[:200]
    finding = Finding(
        code="tokenizer-unread",
        what=f"{file} differs from the model's own, and the tokenizers could not be tried: {type(why).__name__}: {reason}",
        help="copy the tokenizer's files from the model's folder",
        doubts=True,
    )
    return TokenizerCheck(findings=(finding,), guilty=file)
