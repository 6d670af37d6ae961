"""Damage of the file itself, whatever it means."""

from bench.fuzz.damage import Target, kind


@kind("truncated")
def truncated(target: Target) -> None:
    """The file ends early."""
    share = target.random.choice([0.0, 0.001, 0.1, 0.5, 0.9, 0.99, 0.999])
    target.bytes_change.append(lambda data: data[: int(len(data) * share)])


@kind("bit-flips")
def bit_flips(target: Target) -> None:
    """Some bits anywhere."""
    count, random = target.random.choice([1, 1, 2, 8, 64]), target.random

    def change(data: bytes) -> bytes:
        content = bytearray(data)
        for _ in range(count):
            content[random.randrange(len(content))] ^= 1 << random.randrange(8)
        return bytes(content)

    target.bytes_change.append(change)


@kind("header-flips")
def header_flips(target: Target) -> None:
    """Some bits among the first bytes, where versions and lengths are."""
    random = target.random

    def change(data: bytes) -> bytes:
        content = bytearray(data)
        for _ in range(2):
            content[random.randrange(min(40, len(content)))] ^= 1 << random.randrange(8)
        return bytes(content)

    target.bytes_change.append(change)


@kind("bytes-inserted")
def bytes_inserted(target: Target) -> None:
    """Some bytes too many, somewhere or at the end."""
    random = target.random
    more = random.randbytes(random.choice([1, 7, 300]))

    def change(data: bytes) -> bytes:
        place = random.choice([len(data), random.randrange(len(data))])
        return data[:place] + more + data[place:]

    target.bytes_change.append(change)


@kind("bytes-zeroed")
def bytes_zeroed(target: Target) -> None:
    """A hole, as a broken download leaves it."""
    random = target.random

    def change(data: bytes) -> bytes:
        place, length = random.randrange(len(data)), random.choice([4, 64, 512])
        return data[:place] + bytes(len(data[place : place + length])) + data[place + length :]

    target.bytes_change.append(change)


@kind("another-file")
def another_file(target: Target) -> None:
    """No model at all: empty, text, JSON, a Git LFS pointer, a zip."""
    content = target.random.choice(
        [
            b"",
            b"hello\n",
            b'{"schema": "1"}',
            b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 12\n",
            b"PK\x03\x04" + bytes(60),
        ]
    )
    target.bytes_change.append(lambda data: content)


@kind("file-twice")
def file_twice(target: Target) -> None:
    """Two models in one file: protobuf merges them."""
    target.bytes_change.append(lambda data: data + data)


@kind("not-utf8")
def not_utf8(target: Target) -> None:
    """A name that is not UTF-8: a byte of a name is replaced where the name stands in the file."""
    names = [
        name
        for node in target.graph.node
        for name in (*node.input, *node.output, node.name, node.op_type)
        if name
    ]
    name = target.one(names).encode()
    wrong = bytes([target.random.choice([0xFF, 0xC0, 0x80])]) + name[1:]
    everywhere = target.random.random() < 0.5
    target.bytes_change.append(
        lambda data: data.replace(name, wrong) if everywhere else data.replace(name, wrong, 1)
    )
