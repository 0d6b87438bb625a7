"""Names in scripts with capitals: capitalised phrases, dates, quantities, quoted titles and identifiers."""

import bisect
from collections.abc import Iterator

import regex

from corpusmill.models.rules.lexicon import (
    BODIES,
    ENGLISH,
    EUROPEAN,
    MONTHS,
    NAME_LINKS,
    NAME_OPENERS,
    NAMING_POSSESSIVES,
    OFFICES,
    OPENERS,
    STOP_WORDS,
    TITLES,
)
from corpusmill.models.rules.types import Mention
from corpusmill.spans import Span

_MAX_QUOTE_WORDS = 8
_LEAD = 120  # code points looked back for the begin of a sentence
_MAX_WORDS = 10  # of one name; a longer run of capitals is a heading

_DATE = regex.compile(
    rf"\b(?:(?:\d{{1,2}}(?:st|nd|rd|th)?\s+)?(?:{MONTHS})\.?(?:\s+\d{{1,2}}(?:st|nd|rd|th)?)?(?:,)?\s+\d{{4}}"
    rf"|\d{{1,2}}(?:st|nd|rd|th)?\s+(?:of\s+)?(?:{MONTHS})|(?:{MONTHS})\s+\d{{1,2}}(?:st|nd|rd|th)?)\b"
    r"|\b\d{4}-\d{2}-\d{2}\b"
    r"|\b\d{1,2}(?:st|nd|rd|th)[ -]century\b|\b(?:eighteenth|nineteenth|twentieth|twenty-first) century\b"
    r"|\b(?:1[0-9]|20)\d{2}[–-]\d{2}\b(?![–-])"
    r"|\b(?:1[0-9]|20)\d{2}s?\b(?![\d%,.]*\d)"
)
_QUANTITY = regex.compile(
    r"[$€£¥]\s?\d[\d,.]*\d?(?:\s(?:thousand|million|billion|trillion))?"
    r"|\b\d[\d,.]*\s?(?:%|percent\b|per cent\b|(?:thousand|million|billion|trillion)\b"
    r"|(?:km|cm|mm|kg|mg|GB|MB|KB|TB|GHz|MHz|Hz|kW|MW|GW|mph|km²|mi|ft|miles|metres|meters|kilometres|kilometers|feet"
    r"|acres|hectares|tonnes|tons|bytes|seconds|minutes|hours|days|weeks|months|years)\b)"
    r"|\b\d{1,3}(?:,\d{3})+\b"
)
_CODE = regex.compile(
    r"`[^`\n]{2,80}`"
    r"|(?<![\w.@/-])(?:"
    r"--[a-z][\w-]+"  # --flag
    r"|x-[a-z0-9]+(?:-[a-z0-9]+)*"  # x-amz-acl
    r"|[a-z]+(?:[A-Z][a-z0-9]*)+"  # maxKeys
    r"|[A-Z][a-z0-9]+(?:[A-Z][a-z0-9]*)+"  # PutObject
    r"|[A-Z]{2,}[a-z][A-Za-z0-9]*"  # HTTPServer
    r"|_*[A-Za-z][A-Za-z0-9]*(?:_[A-Za-z0-9]+)+"  # snake_case
    r"|[a-z][\w]*(?:\.[a-zA-Z_]\w*)+(?:\(\))?"  # module.name
    r"|[a-z_]\w*\(\)"  # call()
    r"|[a-z][a-z0-9-]*:[A-Z][A-Za-z]+"  # s3:GetObject
    r")(?![\w-])"
)
_EDITION = regex.compile(
    r"\b(?:1[89]|20)\d{2} (?:[\p{Lu}\p{N}][\p{L}\p{M}.'’-]* ){0,4}"
    r"(?:Olympics|Games|Cup|Draft|Championships?|Open|Masters|Series|Finals?|Tour|Awards|Prix|Census|Festival|League|Act)\b"
)
_QUOTED = regex.compile(r"[“„«](?P<inner>[^“”„«»\n]+)[”“»]|\"(?P<plain>[^\"\n]+)\"|‘(?P<single>[^‘’\n]{3,80})’")
_TITLED = regex.compile(r"[《〈「『【](?P<inner>[^《》〈〉「」『』【】\n]{1,40})[》〉」』】]")

_CAP = r"\p{Lu}[\p{L}\p{M}\p{N}]*(?:[-'’&./]\p{L}[\p{L}\p{M}\p{N}]*)*\.?"
_INITIAL = r"(?:\p{Lu}\.)(?:\s?\p{Lu}\.)*"
_TOKEN = regex.compile(
    rf"(?P<initials>{_INITIAL}(?=\s?\p{{Lu}}|\W|$))|(?P<cap>{_CAP})|(?P<num>\d+(?:[.,]\d+)*\p{{L}}{{0,2}})"
    r"|(?P<word>[\p{L}\p{M}][\p{L}\p{M}\p{N}'’-]*)|(?P<wide>[^\S\n]{3,})|(?P<gap>[^\S\n]+|\n(?!\s*\n))|(?P<amp>&)|(?P<other>.|\n)",
    regex.DOTALL,
)
_CAPITAL_WORD = regex.compile(r"\p{Lu}[\p{L}\p{M}\p{N}'’-]*")
_LOWER_WORD = regex.compile(r"(?<![\p{L}\p{N}])\p{Ll}[\p{L}\p{M}]*")
_COMMON_FORM = regex.compile(r"\p{Lu}\p{Ll}+(?:ly|ing|[^m]ed)$")  # adverbs and participles, which open sentences


def cased_mentions(text: str, sentence_starts: list[int]) -> list[Mention]:
    """Names of `text`; they may overlap (the caller keeps the longest). `sentence_starts` ascending."""
    context = _Context(text, sentence_starts)
    found: list[Mention] = []
    for pattern in (_DATE, _QUANTITY, _EDITION):
        found.extend(Mention(Span(*m.span()), m.group()) for m in pattern.finditer(text))
    found.extend(_codes(text))
    found.extend(_quoted(text))
    found.extend(_phrases(text, context))
    return found


class _Context:
    """What the whole text says about its words: those in lower case, and those with a capital within sentences."""

    def __init__(self, text: str, starts: list[int]) -> None:
        self.starts = starts
        self.english = False
        self.lower = set(_LOWER_WORD.findall(text))
        self.inner: set[str] = set()
        for m in _CAPITAL_WORD.finditer(text):
            if not self.begins_sentence(m.start(), text):
                self.inner.add(m.group().lower())
        self.english = "the" in self.lower

    def begins_sentence(self, at: int, text: str) -> bool:
        """Whether only opening marks stand between a sentence's start and `at`, or a colon is before it."""
        i = bisect.bisect_right(self.starts, at) - 1
        start = self.starts[i] if i >= 0 else 0
        lead = text[max(start, at - _LEAD) : at]
        return not any(ch.isalnum() for ch in lead) or lead.rstrip("\"'“‘«( ").endswith((":", "•", "—"))


def _codes(text: str) -> Iterator[Mention]:
    for m in _CODE.finditer(text):
        start, end = m.span()
        if m.group()[0] == "`":
            start, end = start + 1, end - 1
            if len(text[start:end].split()) > 4:
                continue
        name = text[start:end].strip()
        if "." in name and "(" not in name and name.rsplit(".", 1)[-1].lower() in ("com", "org", "net"):
            continue  # a host name
        if name:
            yield Mention(Span(start, end), name)


def _quoted(text: str) -> Iterator[Mention]:
    """Titles in quotation marks; a quoted sentence is speech, not a name."""
    for pattern in (_QUOTED, _TITLED):
        for m in pattern.finditer(text):
            group = m.lastgroup or "inner"
            inner = m.group(group)
            name = inner.strip(" ,.;:!?")
            words = name.split()
            speech = inner.rstrip().endswith((",", "?", "!")) or len(words) > _MAX_QUOTE_WORDS
            if not name or speech or (pattern is _QUOTED and words[0].lower() in ("i", "we", "you")):
                continue
            start = m.start(group) + inner.index(name)
            yield Mention(Span(start, start + len(name)), name)


class _Word:
    __slots__ = ("end", "kind", "lower", "start", "text")

    def __init__(self, kind: str, text: str, start: int) -> None:
        self.kind, self.text, self.start, self.end = kind, text, start, start + len(text)
        self.lower = text.lower().rstrip(".")


def _phrases(text: str, context: _Context) -> Iterator[Mention]:
    """Maximal runs of capitalised words, with the links between them."""
    run: list[_Word] = []
    gap = True
    for m in _TOKEN.finditer(text):
        kind = m.lastgroup or "other"
        if kind == "gap":
            gap = True
            continue
        word = _Word(kind, m.group(), m.start())
        if kind in ("cap", "initials"):
            if run and not gap and text[run[-1].end - 1] != ".":
                yield from _close(run, text, context)
                run = []
            run.append(word)
            if word.text.endswith(".") and _ends_sentence(word, context):
                yield from _close(run, text, context)
                run = []
        elif run and (kind in ("num", "amp") or (kind == "word" and _may_link(run, word))):
            run.append(word)
        elif run:
            yield from _close(run, text, context)
            run = []
        gap = False
    if run:
        yield from _close(run, text, context)


def _ends_sentence(word: _Word, context: _Context) -> bool:
    """Whether the full stop of `word` is a sentence's: it is neither an initial nor a title before a name."""
    i = bisect.bisect_right(context.starts, word.start)
    next_start = context.starts[i] if i < len(context.starts) else None
    if next_start is not None and next_start - word.end <= 2:
        return True
    return not (word.kind == "initials" or word.lower in TITLES or len(word.lower) <= 2)


def _may_link(run: list[_Word], word: _Word) -> bool:
    """Whether a word in lower case may stand inside the name that `run` begins."""
    if run[-1].kind not in ("cap", "initials", "word") or (len(run) > 1 and run[-1].kind == run[-2].kind == "word"):
        return False
    if word.lower in NAME_LINKS:
        return True
    if word.lower == "the":
        return run[-1].kind == "word" and run[-1].lower in ("of", "for", "on", "in")
    body = any(w.lower in BODIES for w in run if w.kind == "cap")
    if word.lower == "and":
        return body and any(w.kind == "word" for w in run) and run[-1].kind == "cap"
    return body and word.lower == "for" and run[-1].kind == "cap"


def _close(run: list[_Word], text: str, context: _Context) -> Iterator[Mention]:
    words = list(run)
    while words and (words[-1].kind in ("word", "amp") or _is_loose_number(words)):
        words.pop()
    for part in _split(words, text, context):
        start, end = part[0].start, part[-1].end
        name = text[start:end]
        for suffix in ("'s", "’s", "'", "’"):
            if name.endswith(suffix):
                name = name[: -len(suffix)]
                break
        if name.endswith(".") and not regex.search(r"\b\p{Lu}\.$|\b(?:Jr|Sr|Inc|Ltd|Co|Corp|St)\.$", name):
            name = name[:-1]
        if len(name) > 1:
            yield Mention(Span(start, start + len(name)), name)


def _is_loose_number(words: list[_Word]) -> bool:
    return words[-1].kind == "num" and len(words) > 1 and words[-2].kind == "word"


def _split(words: list[_Word], text: str, context: _Context) -> Iterator[list[_Word]]:
    """The names in a run: function words, lone openers of sentences and possessives are cut off its front."""
    part: list[_Word] = []
    for word in _without_front(words, text, context):
        part.append(word)
        if word.text.endswith(("'s", "’s")) and word is not words[-1] and not _names_on(part):
            yield from _worth(part, text, context)
            part = []
    yield from _worth(part, text, context)


def _without_front(words: list[_Word], text: str, context: _Context) -> list[_Word]:
    while words and _is_front(words, text, context):
        words = words[1:]
    return words


def _is_front(words: list[_Word], text: str, context: _Context) -> bool:
    """Whether the first word is no part of a name: a link, a number, a function word, an office, an opening verb."""
    first = words[0]
    if first.kind in ("word", "amp", "num"):
        return True
    if first.lower == "the":
        return True
    if first.text.isupper() and len(first.text) > 1:
        return False  # "US", "WHO", "IT"
    followed = len(words) > 1 and words[1].kind in ("cap", "initials")
    if first.lower in OFFICES:
        return followed and len([w for w in words[1:3] if w.kind in ("cap", "initials")]) == 2
    if first.lower == "prime" and followed:
        return words[1].lower == "minister" and len(words) > 2 and words[2].kind == "cap"
    if followed and not _at_start(first, text, context):
        return first.lower in ENGLISH and first.lower not in NAME_OPENERS
    if first.lower in STOP_WORDS:
        if context.english and first.lower in EUROPEAN - ENGLISH and followed:
            return False
        return not (first.lower in NAME_OPENERS and followed)
    return followed and first.lower in OPENERS


def _names_on(part: list[_Word]) -> bool:
    """Whether a possessive goes on as one name: a saint's, or that of a class of people."""
    stem = part[-1].lower.removesuffix("'s").removesuffix("’s")
    return stem in NAMING_POSSESSIVES or any(word.lower in ("st", "saint") for word in part[:-1])


def _at_start(word: _Word, text: str, context: _Context) -> bool:
    return context.begins_sentence(word.start, text)


def _worth(part: list[_Word], text: str, context: _Context) -> Iterator[list[_Word]]:
    part = _without_front(part, text, context)
    while part and part[-1].kind in ("word", "amp"):
        part = part[:-1]
    if not part or len(part) > _MAX_WORDS:
        return
    only = part[0]
    if len(part) == 1:
        if len(only.lower) < (3 if only.kind == "initials" else 2):
            return
        if _at_start(only, text, context) and not _is_name(only, context):
            return
        if only.lower in ENGLISH:
            return
    yield part


def _is_name(word: _Word, context: _Context) -> bool:
    """Whether a word that begins a sentence is a name: seen with a capital elsewhere, or never in lower case."""
    if word.lower in context.inner:
        return True
    common = word.lower in context.lower or word.lower in OPENERS or _COMMON_FORM.match(word.text) is not None
    return not common
