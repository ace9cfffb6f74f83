#!/usr/bin/env python3
"""Writes prism/text/unicode_tables.inc: the Unicode properties that decide how text becomes tokens.

Usage: tools/make_unicode_tables.py [--check]      (--check compares with the file instead of writing it)

It queries the `tokenizers` package about every code point, because that package mixes two versions of Unicode: its
regular expressions use a newer one than utf8proc, its NFC uses version 9. Run it again when tools/requirements.txt names
another version of `tokenizers`.
"""

import argparse
import pathlib
import sys

import tokenizers
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers

TABLE = pathlib.Path(__file__).resolve().parents[1] / "prism/text/unicode_tables.inc"
CODE_POINTS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
BLOCK = 0x1000
BELOW_ALL, ABOVE_ALL = "\u0334", "\u0345"  # combining classes 1 and 240: the smallest and the largest above zero


def blocks():
    for start in range(0, len(CODE_POINTS), BLOCK):
        yield CODE_POINTS[start : start + BLOCK]


def matched_by(pattern):
    split = pre_tokenizers.Split(Regex(pattern), "removed")
    found = set()
    for block in blocks():
        kept = {c for piece, _ in split.pre_tokenize_str("".join(map(chr, block))) for c in piece}
        found.update(c for c in block if chr(c) not in kept)
    return found


def word_characters():
    """Returns the characters next to which an added token with `single_word` is not matched."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.add_tokens([AddedToken("X", single_word=True, normalized=False)])
    found = set()
    for block in blocks():
        text = "".join(chr(c) + "X " for c in block)
        begins = {begin for begin, _ in tokenizer.encode(text).offsets}
        found.update(c for i, c in enumerate(block) if 3 * i + 1 not in begins)
    return found


def normalization_sets():
    nfc, nfd = normalizers.NFC().normalize_str, normalizers.NFD().normalize_str
    canonical = {c: nfd(chr(c)) for c in CODE_POINTS}
    decomposing = {c for c, text in canonical.items() if text != chr(c)}
    firsts = {ord(canonical[c][0]) for c in decomposing}
    followers = {ord(part) for c in decomposing for part in canonical[c][1:]}
    marks = {
        c
        for c in canonical.keys() - decomposing
        if nfd(chr(c) + BELOW_ALL) != chr(c) + BELOW_ALL or nfd(ABOVE_ALL + chr(c)) != ABOVE_ALL + chr(c)
    }
    unstable = marks | followers | {c for c in CODE_POINTS if nfc(chr(c)) != chr(c)}
    return unstable, unstable | decomposing | firsts


def ranges(members):
    result = []
    for c in sorted(members):
        if result and result[-1][1] == c - 1:
            result[-1][1] = c
        else:
            result.append([c, c])
    return result


def array(name, comment, members):
    lines, line = [], " "
    for first, last in ranges(members):
        entry = f" {{0x{first:X}, 0x{last:X}}},"
        if len(line) + len(entry) > 118:
            lines.append(line)
            line = " "
        line += entry
    body = "\n".join([*lines, line])
    return f"// {comment}\ninline constexpr CodePointRange {name}[] = {{\n{body}\n}};\n"


def render():
    unstable, active = normalization_sets()
    tables = [
        array("kLetterRanges", r"\p{L}", matched_by(r"\p{L}")),
        array("kNumberRanges", r"\p{N}", matched_by(r"\p{N}")),
        array("kSpaceRanges", r"\s", matched_by(r"\s")),
        array("kWordRanges", "not beside an added token with single_word", word_characters()),
        array("kUnstableRanges", "NFC may change it, move it or join it to what is before it", unstable),
        array("kActiveRanges", "takes part in any canonical decomposition, composition or ordering", active),
    ]
    head = f"// Made by tools/make_unicode_tables.py from tokenizers {tokenizers.__version__}; do not edit.\n"
    return "\n".join([head, *tables])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="exit with 1 if the file is out of date")
    check = parser.parse_args().check
    text = render()
    if not check:
        TABLE.write_text(text)
    elif TABLE.read_text().splitlines()[1:] != text.splitlines()[1:]:  # the first line only names a version
        sys.exit(f"{TABLE} is out of date: run tools/make_unicode_tables.py")


if __name__ == "__main__":
    main()
