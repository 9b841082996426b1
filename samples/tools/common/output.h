/*
 * output.h - files a program writes: whole or not at all.
 */
#ifndef SAMPLES_COMMON_OUTPUT_H
#define SAMPLES_COMMON_OUTPUT_H

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

#define OUTPUT_PATH_BYTES 4096
#define OUTPUT_ERROR_BYTES 256

/* A file under way: in memory until the end, when dunlin_tools_file_write() puts it in its place.
 */
typedef struct output {
    FILE *file;     /* write here */
    bool is_direct; /* "-", a device, a pipe: written at once, as it stands */
    char path[OUTPUT_PATH_BYTES];
    char *text; /* owned */
    size_t n_text;
    char error[OUTPUT_ERROR_BYTES]; /* after a call has returned false: one line */
} output;

/* Opens; "-" is standard output; what is no regular file is written as it stands. */
bool output_begin(output *out, const char *path);

/* Puts the file in its place; after a failed write, and on any failure here, nothing is left. */
bool output_end(output *out);

/* Gives up: nothing is left. */
void output_abandon(output *out);

/* Writes an object as indented JSON; false with one line in out_error. */
bool output_json(const char *path, const json_t *value, char out_error[OUTPUT_ERROR_BYTES]);

#endif
