"""Finds the MIME type of content from its first bytes, its name, and whether it is text.

It does not use the operating system's tables, so that the result is the same everywhere.
"""

from __future__ import annotations

import re

from wharfinger.content import encodings
from wharfinger.content.encodings import BYTE_ORDER_MARKS, Decoded

__all__ = [
    "BYTE_ORDER_MARKS",
    "DIRECTORY",
    "HTML",
    "JSON",
    "JSON_LINES",
    "MARKDOWN",
    "OCTETS",
    "PDF",
    "SNIFFED_BYTES",
    "TEXT",
    "Decoded",
    "begins_text",
    "by_name",
    "by_signature",
    "charset_of",
    "classify",
    "decode_text",
    "encoding_of",
    "essence_of",
    "is_guess",
    "is_text",
    "sniff",
]

DIRECTORY = "inode/directory"
"""The MIME type of a resource with children."""
OCTETS = "application/octet-stream"
TEXT = "text/plain"
MARKDOWN = "text/markdown"
HTML = "text/html"
JSON = "application/json"
JSON_LINES = "application/x-ndjson"
PDF = "application/pdf"
SNIFFED_BYTES = 4_096
"""Bytes at the beginning of content that are examined."""

_TABLE = """
text/plain                    txt text log out err lst nfo cfg conf ini properties env lock srt
text/plain                    editorconfig gitignore gitattributes dockerignore npmignore
text/markdown                 md markdown mdown mkd mdx qmd rmd
text/x-rst                    rst rest
text/asciidoc                 adoc asciidoc
text/org                      org
text/csv                      csv
text/tab-separated-values     tsv tab
text/html                     html htm
application/xhtml+xml         xhtml
text/css                      css
text/x-scss                   scss
text/x-sass                   sass
text/x-less                   less
text/javascript               js mjs cjs
text/jsx                      jsx
text/x-typescript             ts mts cts
text/tsx                      tsx
text/x-vue                    vue
text/x-svelte                 svelte
text/x-python                 py pyi pyw pyx pxd
text/x-rust                   rs
text/x-go                     go
text/x-java                   java
text/x-kotlin                 kt kts
text/x-scala                  scala sc
text/x-groovy                 groovy gradle
text/x-clojure                clj cljs cljc edn
text/x-c                      c h
text/x-c++                    cc cpp cxx hh hpp hxx ino
text/x-csharp                 cs csx
text/x-fsharp                 fs fsi fsx
text/x-objective-c            m mm
text/x-swift                  swift
text/x-dart                   dart
text/x-ruby                   rb rake gemspec
text/x-php                    php phtml
text/x-perl                   pl pm
text/x-lua                    lua
text/x-r                      r
text/x-julia                  jl
text/x-haskell                hs lhs
text/x-ocaml                  ml mli
text/x-elm                    elm
text/x-elixir                 ex exs
text/x-erlang                 erl hrl
text/x-lisp                   lisp lsp el scm rkt
text/x-fortran                f f90 f95 for
text/x-pascal                 pas
text/x-ada                    adb ads
text/x-asm                    s asm
text/x-zig                    zig
text/x-nim                    nim
text/x-crystal                cr
text/x-d                      d
text/x-verilog                v sv
text/x-vhdl                   vhd vhdl
text/x-glsl                   glsl vert frag
text/x-wgsl                   wgsl
text/x-solidity               sol
text/x-nix                    nix
text/x-terraform              tf tfvars hcl
text/x-protobuf               proto
text/x-thrift                 thrift
text/x-cmake                  cmake
text/x-makefile               mk mak make
text/x-dockerfile             dockerfile
text/x-shellscript            sh bash zsh fish ksh
text/x-powershell             ps1 psm1 psd1
text/x-batch                  bat cmd
text/x-diff                   diff patch
text/x-tex                    tex sty cls ltx
text/x-bibtex                 bib
text/x-awk                    awk
text/x-tcl                    tcl
text/x-cuda                   cu cuh
text/x-vim                    vim
text/x-coffeescript           coffee
text/x-jinja                  j2 jinja jinja2
text/x-handlebars             hbs handlebars mustache
text/x-stylus                 styl
text/x-po                     po pot
text/x-abnf                   abnf
text/x-kdl                    kdl
text/x-bicep                  bicep
text/x-prisma                 prisma
text/x-gherkin                feature
text/vtt                      vtt
text/calendar                 ics
text/vcard                    vcf
application/json              json json5 jsonc webmanifest map har
application/geo+json          geojson
application/ld+json           jsonld
application/x-ndjson          jsonl ndjson
application/x-ipynb+json      ipynb
application/schema+json       schema
application/yaml              yaml yml
application/toml              toml
application/xml               xml xsd xsl xslt plist wsdl
application/rss+xml           rss
application/atom+xml          atom
application/gpx+xml           gpx
application/vnd.google-earth.kml+xml kml
application/xliff+xml         xlf xliff
application/cloudevents+json  cloudevent
application/graphql           graphql gql
application/sql               sql ddl dml
application/rtf               rtf
application/pdf               pdf
application/postscript        ps eps ai
application/epub+zip          epub
application/zip               zip
application/gzip              gz tgz
application/x-bzip2           bz2 tbz2
application/x-xz              xz txz
application/zstd              zst
application/x-7z-compressed   7z
application/vnd.rar           rar
application/x-tar             tar
application/java-archive      jar war
application/vnd.sqlite3       sqlite sqlite3 db3
application/vnd.apache.parquet parquet
application/vnd.apache.arrow.file arrow feather
application/avro              avro
application/x-hdf5            h5 hdf5
application/x-numpy           npy npz
application/wasm              wasm
application/x-lz4             lz4
application/x-iso9660-image   iso
application/vnd.debian.binary-package deb
application/x-rpm             rpm
application/vnd.android.package-archive apk
application/vnd.apache.orc    orc
application/x-netcdf          nc
application/dicom             dcm
application/vnd.tcpdump.pcap  pcap
application/vnd.google-earth.kmz kmz
model/gltf-binary             glb
model/gltf+json               gltf
application/vnd.ms-excel      xls
application/msword            doc
application/vnd.ms-powerpoint ppt
application/vnd.openxmlformats-officedocument.spreadsheetml.sheet xlsx
application/vnd.openxmlformats-officedocument.wordprocessingml.document docx
application/vnd.openxmlformats-officedocument.presentationml.presentation pptx
application/vnd.oasis.opendocument.text odt
application/vnd.oasis.opendocument.spreadsheet ods
application/vnd.oasis.opendocument.presentation odp
application/x-executable      elf
application/vnd.microsoft.portable-executable exe dll
application/octet-stream      bin dat pyc pyo class o a so dylib pkl pickle
image/png                     png
image/jpeg                    jpg jpeg jpe
image/gif                     gif
image/webp                    webp
image/avif                    avif
image/heic                    heic heif
image/bmp                     bmp
image/tiff                    tif tiff
image/x-icon                  ico
image/jp2                     jp2
image/jxl                     jxl
image/vnd.djvu                djvu
image/svg+xml                 svg
image/vnd.adobe.photoshop     psd
audio/mpeg                    mp3
audio/wav                     wav
audio/flac                    flac
audio/ogg                     ogg oga opus
audio/mp4                     m4a
audio/midi                    mid midi
audio/aac                     aac
audio/aiff                    aif aiff
video/mp4                     mp4 m4v
video/quicktime               mov
video/webm                    webm
video/x-matroska              mkv
video/x-msvideo               avi
video/mpeg                    mpg mpeg
video/x-flv                   flv
video/3gpp                    3gp
font/woff                     woff
font/woff2                    woff2
font/ttf                      ttf
font/otf                      otf
font/collection               ttc
message/rfc822                eml
"""
_BY_EXTENSION = {extension: row[0] for row in map(str.split, _TABLE.strip().splitlines()) for extension in row[1:]}
_BY_NAME = {
    "makefile": "text/x-makefile", "gnumakefile": "text/x-makefile", "dockerfile": "text/x-dockerfile",
    "containerfile": "text/x-dockerfile", "cmakelists.txt": "text/x-cmake", "gemfile": "text/x-ruby",
    "rakefile": "text/x-ruby", "jenkinsfile": "text/x-groovy", "pipfile": "application/toml",
    "readme": TEXT, "license": TEXT, "licence": TEXT, "copying": TEXT, "authors": TEXT, "changelog": TEXT,
    "notice": TEXT, "todo": TEXT, "go.mod": TEXT, "go.sum": TEXT, "cargo.lock": "application/toml",
    "poetry.lock": "application/toml", "uv.lock": "application/toml", "package-lock.json": "application/json",
}  # fmt: skip

# Offset, signature and type; the first match counts. A text may begin with some of them (`ID3`), so they count only for
# binary content and for text in a guessed encoding.
_SIGNATURES: tuple[tuple[int, bytes, str], ...] = (
    (0, b"\x89PNG\r\n\x1a\n", "image/png"),
    (0, b"\xff\xd8\xff", "image/jpeg"),
    (0, b"GIF87a", "image/gif"),
    (0, b"GIF89a", "image/gif"),
    (0, b"%PDF-", "application/pdf"),
    (0, b"PK\x03\x04", "application/zip"),
    (0, b"PK\x05\x06", "application/zip"),
    (0, b"\x1f\x8b\x08", "application/gzip"),
    (0, b"BZh", "application/x-bzip2"),
    (0, b"\xfd7zXZ\x00", "application/x-xz"),
    (0, b"\x28\xb5\x2f\xfd", "application/zstd"),
    (0, b"7z\xbc\xaf\x27\x1c", "application/x-7z-compressed"),
    (0, b"Rar!\x1a\x07", "application/vnd.rar"),
    (257, b"ustar", "application/x-tar"),
    (0, b"SQLite format 3\x00", "application/vnd.sqlite3"),
    (0, b"PAR1", "application/vnd.apache.parquet"),
    (0, b"ARROW1\x00\x00", "application/vnd.apache.arrow.file"),
    (0, b"Obj\x01", "application/avro"),
    (0, b"\x89HDF\r\n\x1a\n", "application/x-hdf5"),
    (0, b"\x93NUMPY", "application/x-numpy"),
    (0, b"\x00asm", "application/wasm"),
    (0, b"\x7fELF", "application/x-executable"),
    (0, b"\xcf\xfa\xed\xfe", "application/x-mach-binary"),
    (0, b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "application/x-ole-storage"),
    (0, b"\x04\x22\x4d\x18", "application/x-lz4"),
    (0, b"!<arch>\ndebian", "application/vnd.debian.binary-package"),
    (0, b"\xed\xab\xee\xdb", "application/x-rpm"),
    (0, b"MZ\x90\x00", "application/vnd.microsoft.portable-executable"),
    (0, b"\xd4\xc3\xb2\xa1", "application/vnd.tcpdump.pcap"),
    (0, b"glTF\x02\x00", "model/gltf-binary"),
    (0, b"CDF\x01", "application/x-netcdf"),
    (128, b"DICM", "application/dicom"),
    (0, b"\0\0\0\x0cjP  ", "image/jp2"),
    (0, b"\0\0\0\x0cJXL ", "image/jxl"),
    (0, b"AT&TFORM", "image/vnd.djvu"),
    (0, b"FLV\x01", "video/x-flv"),
    (8, b"AIFF", "audio/aiff"),
    (4, b"ftyp3gp", "video/3gpp"),
    (4, b"ftypmif1", "image/heic"),
    (4, b"ftypavif", "image/avif"),
    (4, b"ftypheic", "image/heic"),
    (4, b"ftypheix", "image/heic"),
    (4, b"ftypqt  ", "video/quicktime"),
    (4, b"ftypM4A ", "audio/mp4"),
    (4, b"ftyp", "video/mp4"),
    (0, b"II*\x00", "image/tiff"),
    (0, b"MM\x00*", "image/tiff"),
    (0, b"\x00\x00\x01\x00", "image/x-icon"),
    (0, b"8BPS\x00\x01", "image/vnd.adobe.photoshop"),
    (0, b"ID3", "audio/mpeg"),
    (0, b"\xff\xfb", "audio/mpeg"),
    (0, b"\xff\xf3", "audio/mpeg"),
    (0, b"\xff\xf1", "audio/aac"),
    (0, b"fLaC", "audio/flac"),
    (0, b"OggS", "audio/ogg"),
    (0, b"MThd\x00", "audio/midi"),
    (0, b"\x1a\x45\xdf\xa3", "video/x-matroska"),
    (0, b"wOFF", "font/woff"),
    (0, b"wOF2", "font/woff2"),
    (0, b"\x00\x01\x00\x00\x00", "font/ttf"),
    (0, b"OTTO\x00", "font/otf"),
    (0, b"ttcf\x00", "font/collection"),
)
_RIFF = {b"WEBP": "image/webp", b"WAVE": "audio/wav", b"AVI ": "video/x-msvideo"}
# Types of containers: a file's name is more specific than such a signature.
_CONTAINERS = frozenset(
    {
        "application/zip", "application/gzip", "application/x-ole-storage", "application/x-tar", "audio/ogg",
        "video/mp4", "video/x-matroska", "image/tiff",
    }
)  # fmt: skip
# Text types other than `text/…`.
_TEXTUAL = frozenset(
    {
        "application/graphql", "application/json", "application/postscript", "application/rtf", "application/sql",
        "application/toml", "application/x-ndjson", "application/xml", "application/yaml", "message/rfc822",
    }
)  # fmt: skip
_INTERPRETER = re.compile(
    rb"[!/ \t](?:(python)|(node|nodejs)|(ruby)|(perl)|(?:ba|c|da|fi|k|tc|z)?sh)[0-9.]*(?!\S)"
).search
_INTERPRETED = ("text/x-shellscript", "text/x-python", "text/javascript", "text/x-ruby", "text/x-perl")
"""The types of scripts, by the number of the group in `_INTERPRETER`; 0 if it is a shell."""


def by_name(name: str) -> str:
    """Return the type for a file name, or an empty string if it is unknown."""
    lower = name.lower()
    return _BY_NAME.get(lower) or _BY_EXTENSION.get(lower.rpartition(".")[2] if "." in lower else "", "")


def by_signature(head: bytes) -> str:
    """Return the type for the signature in the first bytes, or an empty string if there is none."""
    for offset, signature, mime in _SIGNATURES:
        if head.startswith(signature, offset):
            return "" if mime == "application/x-bzip2" and not head[3:4].isdigit() else mime
    if head.startswith(b"RIFF"):
        return _RIFF.get(head[8:12], "")
    if head.startswith(b"BM") and head[6:10] == b"\0\0\0\0":
        return "image/bmp"
    if head[:1] == b"\x47" and head[188:189] == b"\x47" and head[376:377] == b"\x47":  # packets of 188 bytes
        return "video/mp2t"
    return ""


def classify(name: str, head: bytes, text: bool) -> str:
    """Return the type of content; `text` says whether it is text. In binary content, a signature outweighs the name.

    The name is more specific than the signature of a container, such as ZIP. PDF is PDF even if it is text.

    Binary content without a signature gets the textual type of its name only if it has no NUL: it may be text in an
    unknown encoding.
    """
    type_of_name = by_name(name)
    if text:
        if head.startswith(b"%PDF-"):  # may be valid text, but is not useful as text
            return PDF
        if _is_textual(type_of_name):
            return type_of_name
        if head.startswith(b"#!"):
            interpreter = _INTERPRETER(head[:128].partition(b"\n")[0])
            return _INTERPRETED[interpreter.lastindex or 0] if interpreter else TEXT
        return TEXT
    type_of_head = by_signature(head)
    if type_of_head:
        return (
            type_of_name
            if type_of_head in _CONTAINERS and type_of_name and not _is_textual(type_of_name)
            else type_of_head
        )
    if not type_of_name or (_is_textual(type_of_name) and b"\0" in head):
        return OCTETS
    return type_of_name


def sniff(data: bytes) -> str:
    """Return the type of content without a name."""
    return classify("", data[:SNIFFED_BYTES], decode_text(data) is not None)


_TEXT_ENDINGS = ("+json", "+xml", "+yaml", "/javascript", "/typescript")


def is_text(mime: str) -> bool:
    """Return whether a declared MIME type, with or without parameters, is a type of text."""
    return _is_textual(essence_of(mime))


def essence_of(mime: str) -> str:
    """Return a MIME type without its parameters, in lower case."""
    return mime.partition(";")[0].strip().lower()


_CHARSET = re.compile(r";\s*charset\s*=\s*\"?([A-Za-z0-9._:-]{1,40})", re.IGNORECASE).search


def charset_of(mime: str) -> str:
    """Return the `charset` parameter of a MIME type, or an empty string if it has none."""
    match = _CHARSET(mime)
    return match[1] if match else ""


def _is_textual(mime: str) -> bool:
    return mime.startswith("text/") or mime in _TEXTUAL or mime.endswith(_TEXT_ENDINGS)


def decode_text(data: bytes) -> Decoded | None:
    """Decode content as UTF-8, UTF-16, UTF-32 or windows-1252. Returns None if it is not text.

    Line breaks and a UTF-8 byte order mark are kept. Ask `is_guess` whether the encoding is only a guess.
    """
    decoded = encodings.decode(data)
    if decoded is None or decoded[1] == "utf-8":
        return decoded
    return None if is_guess(data, decoded[1]) and by_signature(data[:SNIFFED_BYTES]) else decoded


def encoding_of(head: bytes, complete: bool) -> str:
    """Return the encoding of a text that begins with `head`, or an empty string if it is not text.

    Unless `complete`, `head` may end inside a character.
    """
    encoding = encodings.encoding_of(head, complete)
    return "" if is_guess(head, encoding) and by_signature(head[:SNIFFED_BYTES]) else encoding


def is_guess(head: bytes, encoding: str) -> bool:
    """Return whether this encoding is only a guess: it is not UTF-8, and there is no byte order mark."""
    return encoding not in ("", "utf-8") and not encodings.has_mark(head)


def begins_text(head: bytes) -> bool:
    """Return whether these bytes, which may end inside a character, begin a text."""
    return bool(encoding_of(head, False))
