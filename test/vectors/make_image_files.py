#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Image files of all kinds and what Pillow's Image.open(file).convert("RGB") makes of them, for
test_image_file: image_files.safetensors with "file.NAME" [bytes] and "pixels.NAME" [height, width, 3].
Needs numpy, Pillow, safetensors. Pillow cannot write all kinds of PNG: those are made here.
    make_image_files.py image_files.safetensors"""
import io
import struct
import sys
import zlib

import numpy as np
from PIL import Image
from safetensors.numpy import save_file

random = np.random.default_rng(1)
PASSES = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)]
CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}


def picture(width, height, channels):
    """Smooth colours with some noise, as photographs have."""
    y, x = np.mgrid[0:height, 0:width]
    planes = [128 + 100 * np.sin(x / (5 + 3 * c) + c) * np.cos(y / (7 - c)) + random.normal(0, 8, x.shape)
              for c in range(channels)]
    return np.clip(np.stack(planes, -1), 0, 255).astype(np.uint8)


def jpeg(image, **how):
    file = io.BytesIO()
    image.save(file, "JPEG", **how)
    return file.getvalue()


def chunk(name, data):
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def packed_rows(samples, depth):
    """[height, width, channels] as PNG's rows, each with filter 0, or 1 (Sub) where values are bytes."""
    rows = b""
    for number, row in enumerate(samples):
        flat = row.reshape(-1)
        if depth == 16:
            rows += b"\0" + flat.astype(">u2").tobytes()
        elif depth == 8:
            step = samples.shape[2]
            before = np.concatenate([np.zeros(step, flat.dtype), flat[:-step]])
            rows += (b"\1" + (flat - before).astype(np.uint8).tobytes() if number % 2
                     else b"\0" + flat.astype(np.uint8).tobytes())
        else:
            bits = ((flat[:, None] >> np.arange(depth - 1, -1, -1)) & 1).astype(np.uint8).reshape(-1)
            rows += b"\0" + np.packbits(bits).tobytes()
    return rows


def png(samples, kind, depth, interlaced=False, chunks=b""):
    height, width = samples.shape[:2]
    parts = ([samples[y::down, x::across] for x, y, across, down in PASSES] if interlaced else [samples])
    data = b"".join(packed_rows(part, depth) for part in parts if part.size)
    header = struct.pack(">IIBBBBB", width, height, depth, kind, 0, 0, int(interlaced))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunks + chunk(b"IDAT", zlib.compress(data)) +
            chunk(b"IEND", b""))


def samples(width, height, kind, depth):
    channels = CHANNELS[kind]
    if depth == 16:
        return random.integers(0, 65536, (height, width, channels)).astype(np.uint16)
    return (picture(width, height, channels) >> (8 - depth)).astype(np.uint16)


def webp(image, **how):
    file = io.BytesIO()
    image.save(file, "WEBP", method=6, **how)
    return file.getvalue()


def riff(name, data):
    return name + struct.pack("<I", len(data)) + data + b"\0" * (len(data) % 2)


def webp_frame_inside(image, x, y, width, height):
    """An animation whose first frame is at (x, y) of a larger canvas."""
    def three(value):
        return struct.pack("<I", value)[:3]
    data = webp(image, lossless=True)[12:]
    frame = three(x // 2) + three(y // 2) + three(image.width - 1) + three(image.height - 1) + three(100) + b"\0"
    body = (b"WEBP" + riff(b"VP8X", b"\2\0\0\0" + three(width - 1) + three(height - 1)) +
            riff(b"ANIM", bytes(6)) + riff(b"ANMF", frame + data))
    return riff(b"RIFF", body)


def webp_files():
    rgb, other = (Image.fromarray(picture(45, 35, 3)) for _ in range(2))
    rgba = Image.fromarray(picture(45, 35, 4), "RGBA")
    files = {"lossy": webp(rgb), "quality10": webp(rgb, quality=10), "alpha": webp(rgba),
             "lossless": webp(rgb, lossless=True), "lossless_alpha": webp(rgba, lossless=True, exact=True),
             "palette": webp(rgb.quantize(5).convert("RGB"), lossless=True),
             "profile": webp(rgb, icc_profile=bytes(random.integers(0, 256, 9000, np.uint8))),
             "animated": webp(rgb, save_all=True, append_images=[other]),
             "inside": webp_frame_inside(rgb.crop((0, 0, 21, 15)), 6, 4, 45, 35)}
    for width, height in [(1, 1), (1, 19), (19, 1), (16, 16), (33, 17)]:
        files[f"{width}x{height}"] = webp(rgb.crop((0, 0, width, height)))
    return {"webp_" + name: data for name, data in files.items()}


def all_files():
    rgb = Image.fromarray(picture(45, 35, 3))
    grey = Image.fromarray(picture(45, 35, 1)[..., 0])
    cmyk = Image.fromarray(picture(45, 35, 4), "CMYK")
    files = {}
    for name, how in {"444": dict(subsampling=0), "422": dict(subsampling=1), "420": dict(subsampling=2),
                      "progressive": dict(progressive=True), "quality10": dict(quality=10),
                      "restarts": dict(restart_marker_blocks=2), "rgb": dict(keep_rgb=True),
                      "large_profile": dict(icc_profile=bytes(random.integers(0, 256, 9000, np.uint8)))}.items():
        files["jpeg_" + name] = jpeg(rgb, **how)
    exif = Image.Exif()
    exif[0x0112] = 6  # lies on its side: not looked at
    files["jpeg_orientation"] = jpeg(rgb, exif=exif)
    files["jpeg_grey"] = jpeg(grey)
    files["jpeg_cmyk"] = jpeg(cmyk)
    files["jpeg_ycck"] = files["jpeg_cmyk"].replace(b"Adobe\0d\0\0\0\0\0", b"Adobe\0d\0\0\0\0\2")
    assert files["jpeg_ycck"] != files["jpeg_cmyk"]
    files["jpeg_no_end"] = files["jpeg_420"] + b"something behind the end"
    for width, height in [(1, 1), (1, 19), (19, 1), (16, 16), (33, 17)]:
        files[f"jpeg_{width}x{height}"] = jpeg(rgb.crop((0, 0, width, height)), subsampling=2)
    for kind, depths in {0: (1, 2, 4, 8, 16), 2: (8, 16), 4: (8, 16), 6: (8, 16)}.items():
        for depth in depths:
            for interlaced in (False, True):
                name = f"png_{ {0: 'grey', 2: 'rgb', 4: 'grey_alpha', 6: 'rgb_alpha'}[kind]}_{depth}"
                files[name + ("_interlaced" if interlaced else "")] = png(
                    samples(29, 21, kind, depth), kind, depth, interlaced)
    for depth in (1, 2, 4, 8):
        palette = chunk(b"PLTE", random.integers(0, 256, 3 << depth).astype(np.uint8).tobytes())
        files[f"png_palette_{depth}"] = png(samples(29, 21, 3, depth), 3, depth, depth == 4, palette)
    short = chunk(b"PLTE", random.integers(0, 256, 30).astype(np.uint8).tobytes())
    clear = chunk(b"tRNS", bytes([0, 255, 128]))
    files["png_palette_alpha"] = png(samples(29, 21, 3, 8) % 10, 3, 8, False, short + clear)
    files["png_key"] = png(samples(9, 9, 2, 8), 2, 8, False, chunk(b"tRNS", struct.pack(">HHH", 1, 2, 3)))
    files["png_gamma"] = png(samples(9, 9, 2, 8), 2, 8, False, chunk(b"gAMA", struct.pack(">I", 100000)))
    for width, height in [(1, 1), (1, 9), (9, 1), (2, 3)]:
        files[f"png_{width}x{height}"] = png(samples(width, height, 2, 8), 2, 8, True)
    files.update(webp_files())
    return files


def main():
    tensors = {}
    for name, data in all_files().items():
        tensors["file." + name] = np.frombuffer(data, np.uint8)
        tensors["pixels." + name] = np.array(Image.open(io.BytesIO(data)).convert("RGB"))
    save_file(tensors, sys.argv[1])


if __name__ == "__main__":
    main()
