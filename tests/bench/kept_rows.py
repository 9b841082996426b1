"""Rows of a table that a series appends as they come, so that an interrupted one goes on where it was."""
import csv
import pathlib


def read(path):
    """The rows by column; none where there is no file yet."""
    path = pathlib.Path(path)
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def append(path, columns, row):
    """One row more, after a line of columns where it is the first; a column that the row has not stays empty."""
    path = pathlib.Path(path)
    is_new = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, columns, restval="", lineterminator="\n")
        if is_new:
            writer.writeheader()
        writer.writerow(row)
