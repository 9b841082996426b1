/*
 * csv.h - rows of text fields between separators, as RFC 4180 has them: a field may stand in double
 * quotes, with separators, line ends and doubled quotes within. Comma, semicolon or tab: what the
 * first line has most of. Blank lines are passed over.
 */
#ifndef DUNLIN_DATA_CSV_H
#define DUNLIN_DATA_CSV_H

#include "bytes.h"

#define DUNLIN_CSV_CHUNK 4096
#define DUNLIN_CSV_ROW_BYTES (16 << 20) /* the longest row, as text */
#define DUNLIN_CSV_FIELDS (1 << 20)     /* of a row */

typedef struct dunlin_csv {
    dunlin_alloc alloc;
    dunlin_bytes *bytes;
    char separator;
    int64_t line; /* where the row in `text` begins, from 1 */
    int64_t next_line;
    bool is_after_cr;
    size_t at, n_chunk;
    char *text; /* the row's fields, each ended by a 0 */
    size_t n_text, capacity;
    int64_t n_fields;
    uint8_t chunk[DUNLIN_CSV_CHUNK];
} dunlin_csv;

/* `bytes` is open and at its start; a byte order mark of UTF-8 is passed over. End it in any case.
 */
dunlin_status dunlin__csv_begin(dunlin_csv *csv, dunlin_bytes *bytes, const dunlin_alloc *alloc,
                                dunlin_error *error);
void dunlin__csv_end(dunlin_csv *csv);

/* The next row; *out_has is false at the end. Blanks around a field without quotes are taken away.
 * DATA: not text, a quote that does not end, too long. */
dunlin_status dunlin__csv_next(dunlin_csv *csv, bool *out_has, dunlin_error *error);

#endif
