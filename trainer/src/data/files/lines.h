/*
 * lines.h - text files with columns: lines, fields between commas, numbers.
 *
 * A line ends with LF, CR LF or CR, the last one also with the file. Numbers are read the same way
 * in every locale.
 */
#ifndef DUNLIN_DATA_LINES_H
#define DUNLIN_DATA_LINES_H

#include "bytes.h"

#define DUNLIN_LINE_BYTES 8191 /* the longest line, without its end */
#define DUNLIN_LINE_CHUNK 2048 /* read at a time */
#define DUNLIN_FIELD_MOST 1e9  /* the largest number, either side of zero */
#define DUNLIN_FIELD_QUOTED 32 /* bytes of a field in a message */

typedef struct dunlin_lines {
    dunlin_bytes *bytes;
    int64_t number; /* of the line in `text`, from 1 */
    bool is_after_cr;
    size_t at, n_chunk;
    uint8_t chunk[DUNLIN_LINE_CHUNK];
    char text[DUNLIN_LINE_BYTES + 1]; /* the line, ends with 0; fields are cut out of it */
} dunlin_lines;

/* `bytes` is open and at its start; a byte order mark of UTF-8 is passed over. */
void dunlin__lines_begin(dunlin_lines *lines, dunlin_bytes *bytes);

/* The next line, blank ones too; *out_has is false at the end. DATA: too long, or not text. */
dunlin_status dunlin__lines_next(dunlin_lines *lines, bool *out_has, dunlin_error *error);

/* True if there is nothing but blanks in the text. */
bool dunlin__line_is_blank(const char *text);

/*
 * The next field of a line, without the blanks around it and without the quotes (' or ") if it
 * stands in them; commas in quotes do not separate. *at is where to continue, NULL after the last
 * field; the text is cut up. False if there is none left.
 */
bool dunlin__field_next(char **at, char **out_field);

/* The whole field as a decimal number; false if it is none or beyond the limit above. */
bool dunlin__field_number(const char *field, double *out_value);

/* The same up to what a float holds. */
bool dunlin__field_real(const char *field, double *out_value);

/* The whole field as a whole number from `low` (0 or more) to `high`. */
bool dunlin__field_whole(const char *field, int64_t low, int64_t high, int64_t *out_value);

/* Equal but for the case of ASCII letters. */
bool dunlin__field_is(const char *field, const char *word);

/* The beginning of a field as it may stand in a message. */
const char *dunlin__field_quote(const char *field, char out[DUNLIN_FIELD_QUOTED]);

#endif
