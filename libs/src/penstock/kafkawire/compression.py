"""The four codecs of record batches, as Kafka clients write them, with a limit for the decompressed size."""

from typing import Any

import cramjam

from penstock.kafkawire.errors import DecodeError, OversizeError
from penstock.kafkawire.primitives import Buffer

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)

_COMPRESSORS: dict[int, Any] = {
    GZIP: cramjam.gzip.compress,
    SNAPPY: cramjam.snappy.compress_raw,
    ZSTD: cramjam.zstd.compress,
}
_DECOMPRESSORS: dict[int, Any] = {
    GZIP: cramjam.gzip.decompress_into,
    LZ4: cramjam.lz4.decompress_into,
    ZSTD: cramjam.zstd.decompress_into,
}

# Java and Python clients wrap snappy in xerial's framing: this magic, a version and a compatible version of four bytes
# each, then blocks with a length and raw snappy. librdkafka writes one raw block.
_XERIAL_MAGIC = b"\x82SNAPPY\0"
_XERIAL_HEADER_BYTES = 16
_BLOCK_LENGTH_BYTES = 4

# A compressed frame need not contain its decompressed size. So the output buffer starts with a guess, and grows.
_OUTPUT_BYTES_FIRST = 64 * 1024
_OUTPUT_GROWTH = 8
_OUTPUT_TOO_SMALL = "failed to write whole buffer"  # cramjam's message for an output buffer that is too small


def compress(data: Buffer, codec: int) -> bytes:
    """The compressed data for a batch; snappy is raw, lz4 has independent blocks (Java reads no others)."""
    if codec == NONE:
        return bytes(data)
    if codec == LZ4:
        compressor = cramjam.lz4.Compressor(block_linked=False)
        compressor.compress(data)
        return bytes(compressor.finish())
    return bytes(_COMPRESSORS[codec](data))


def decompress(data: Buffer, codec: int, bytes_max: int) -> Buffer:
    """The decompressed data; `OversizeError` if it is larger than `bytes_max`, other `DecodeError` if it is damaged."""
    if codec == NONE:
        return data
    if codec == SNAPPY:
        return _decompress_snappy(memoryview(data), bytes_max)
    if codec not in _DECOMPRESSORS:
        raise DecodeError(f"codec {codec}")
    return _decompress_growing(_DECOMPRESSORS[codec], data, bytes_max)


def _decompress_growing(unpack_into: Any, data: Buffer, bytes_max: int) -> memoryview:
    output_bytes = min(bytes_max, max(_OUTPUT_BYTES_FIRST, 4 * len(data)))
    while True:
        output = bytearray(output_bytes)
        try:
            return memoryview(output)[: unpack_into(data, output)]
        except cramjam.DecompressionError as error:
            if _OUTPUT_TOO_SMALL not in str(error):
                raise DecodeError(f"{len(data)} compressed bytes: {error}") from error
            if output_bytes >= bytes_max:
                raise OversizeError(f"{len(data)} compressed bytes of more than {bytes_max} plain bytes") from error
        output_bytes = min(bytes_max, output_bytes * _OUTPUT_GROWTH)


def _decompress_snappy(data: memoryview, bytes_max: int) -> Buffer:
    if data[: len(_XERIAL_MAGIC)] != _XERIAL_MAGIC:
        return _decompress_raw_snappy(data, bytes_max)
    plain = bytearray()
    position = _XERIAL_HEADER_BYTES
    while position < len(data):
        length = int.from_bytes(data[position : position + _BLOCK_LENGTH_BYTES], "big")
        position += _BLOCK_LENGTH_BYTES
        if length > len(data) - position:
            raise DecodeError(f"snappy block of {length} bytes, but only {len(data) - position} bytes follow")
        plain += _decompress_raw_snappy(data[position : position + length], bytes_max - len(plain))
        position += length
    return plain


def _decompress_raw_snappy(block: memoryview, bytes_max: int) -> bytearray:
    try:
        size_bytes = cramjam.snappy.decompress_raw_len(block)
        if size_bytes > bytes_max:
            raise OversizeError(f"snappy block of {size_bytes} plain bytes, at most {bytes_max}")
        plain = bytearray(size_bytes)
        cramjam.snappy.decompress_raw_into(block, plain)
    except cramjam.DecompressionError as error:
        raise DecodeError(f"snappy block of {len(block)} bytes: {error}") from error
    return plain
