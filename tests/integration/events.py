#!/usr/bin/env python3
"""Reads TensorBoard event files without TensorBoard: events.py CSV FOLDER [FIRST-VOID-STEP]

Checks the framing and both checksums of every record, decodes the messages by their fields, and compares the scalars with
the rows of the CSV log of the same run. With FIRST-VOID-STEP the folder holds two files, the second of which must begin by
voiding that step. If TensorBoard's own reader is installed, it must give the same scalars.
"""
import csv
import pathlib
import struct
import sys


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


assert crc32c(b"123456789") == 0xE3069283, "the check value of CRC-32C"
assert crc32c(bytes(32)) == 0x8A9136AA, "RFC 3720, B.4"


def masked(data):
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def records(path):
    data = path.read_bytes()
    at = 0
    while at < len(data):
        (n,) = struct.unpack_from("<Q", data, at)
        assert struct.unpack_from("<I", data, at + 8)[0] == masked(data[at : at + 8]), f"{path}: length at {at}"
        body = data[at + 12 : at + 12 + n]
        assert len(body) == n, f"{path}: the record at {at} is cut"
        assert struct.unpack_from("<I", data, at + 12 + n)[0] == masked(body), f"{path}: data at {at}"
        yield body
        at += 16 + n


def varint(data, at):
    value = shift = 0
    while True:
        value |= (data[at] & 0x7F) << shift
        shift += 7
        at += 1
        if data[at - 1] < 0x80:
            return value, at


def fields(data):
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        if key & 7 == 0:
            value, at = varint(data, at)
        else:
            n, at = varint(data, at) if key & 7 == 2 else ({1: 8, 5: 4}[key & 7], at)
            value, at = data[at : at + n], at + n
        yield key >> 3, value


def scalars(paths):
    """By (step, tag), and the steps from which on earlier ones are void."""
    found, voids = {}, []
    for path in paths:
        for i, record in enumerate(records(path)):
            event = dict(fields(record))
            assert struct.unpack("<d", event[1])[0] > 1.7e9, "the time of an event"
            step = event[2]
            assert (i == 0) == (3 in event), "the version comes first, once"
            if i == 0:
                assert event[3] == b"brain.Event:2"
            if 7 in event:
                assert dict(fields(event[7])) == {1: 1}
                voids.append(step)
                found = {key: value for key, value in found.items() if key[0] < step}
            for field, value in fields(event.get(5, b"")):
                scalar = dict(fields(value))
                assert field == 1 and set(scalar) == {1, 2}
                found[step, scalar[1].decode()] = struct.unpack("<f", scalar[2])[0]
    return found, voids


def main():
    table, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    paths = sorted(folder.iterdir(), key=lambda path: path.stat().st_mtime_ns)
    void = [int(step) for step in sys.argv[3:]]
    assert len(paths) == 1 + len(void) and all(p.name.startswith("events.out.tfevents.") for p in paths), paths
    found, voids = scalars(paths)
    assert voids == void, (voids, void)
    single = lambda text: struct.unpack("<f", struct.pack("<f", float(text)))[0]  # noqa: E731
    columns = {"loss": "train/loss", "lr": "train/lr", "epoch": "train/epoch", "test_loss": "test/loss",
               "test_accuracy": "test/accuracy", "peak_bytes": "memory/peak_bytes", "val_loss": "val/loss",
               "val_accuracy": "val/accuracy"}  # fmt: skip
    n = 0
    rows = list(csv.DictReader(open(table), strict=True))
    for row in rows:
        for column, tag in columns.items():
            value = found.pop((int(row["step"]), tag), None)
            assert (value is None) == (row.get(column, "") == ""), (row["step"], tag, value)
            if value is not None:
                # A run that goes on holds other bytes.
                near = abs(value - single(row[column])) <= (0.01 if void and column == "peak_bytes" else 1e-6) * abs(value)
                assert near, (row["step"], tag, value, row[column])
                n += 1
    left = {tag for _, tag in found}
    assert left == {"speed/examples_per_s", "speed/cpu_s"} and len(found) == 2 * len(rows), left
    try:
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    except ImportError:
        print("TensorBoard's own reader: skipped, it is not installed")
    else:
        events = EventAccumulator(str(folder))
        events.Reload()
        assert len(events.Scalars("train/loss")) == len(rows)
    print(f"events: {n} scalars of {len(rows)} steps are those of {table}")


main()
