/*
 * tools.c - the library of tools: data sets that need no file beside those that are read, and
 * files that are written whole.
 */
#include "data/common/data.h"

#include <dunlin/tools.h>
#include <mem/outfile.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

dunlin_status dunlin_tools_dataset_open(const char *name, const char *folder, dunlin_split split,
                                        const dunlin_dataset_options *options,
                                        const dunlin_alloc *hooks, dunlin_dataset **out_dataset,
                                        dunlin_error *out_error)
{
    dunlin_data_request request = {
        .folder = folder, .split = split, .load_glyphs = dunlin__data_load_synthetic};
    return dunlin__dataset_open(name, &request, options, hooks, out_dataset, out_error);
}

dunlin_status dunlin_tools_file_write(const char *path, const void *bytes, size_t n_bytes,
                                      dunlin_error *out_error)
{
    return dunlin__outfile_put(path, 0666, bytes, n_bytes, out_error);
}

/* A whole number at the start of *io_text, which moves behind it; false if there is none. */
static bool take_number(const char **io_text, uint64_t *out_number)
{
    char *end = NULL;
    errno = 0;
    if (**io_text < '0' || **io_text > '9') {
        return false;
    }
    *out_number = strtoull(*io_text, &end, 10);
    *io_text = end;
    return errno == 0;
}

/* Moves *io_text behind `word` if it begins so. */
static bool take_word(const char **io_text, const char *word)
{
    const size_t n = strlen(word);
    const bool is_there = strncmp(*io_text, word, n) == 0;
    *io_text += is_there ? n : 0;
    return is_there;
}

/* "N%" or "N". */
static bool take_amount(const char **io_text, dunlin_validation *out)
{
    const size_t n = strspn(*io_text, "0123456789.");
    out->share = 0.0;
    out->n_examples = 0;
    if (**io_text >= '0' && **io_text <= '9' && (*io_text)[n] == '%') {
        char *end = NULL;
        out->share = strtod(*io_text, &end) / 100.0;
        const bool is_whole = end == *io_text + n;
        *io_text += n + 1;
        return is_whole && out->share > 0.0 && out->share < 1.0;
    }
    uint64_t number = 0;
    if (!take_number(io_text, &number) || number < 1 || number > INT64_MAX) {
        return false;
    }
    out->n_examples = (int64_t)number;
    return true;
}

bool dunlin_tools_parse_validation(const char *text, dunlin_validation *out_validation,
                                   int64_t *out_max_examples)
{
    out_validation->by_client = false;
    if (out_max_examples != NULL) {
        *out_max_examples = 0;
    }
    bool is_good = text != NULL && take_amount(&text, out_validation);
    while (is_good && *text != '\0') {
        uint64_t number = 0;
        if (take_word(&text, ":writers")) {
            out_validation->by_client = true;
        } else if (take_word(&text, ":seed=")) {
            is_good = take_number(&text, &out_validation->seed);
        } else if (out_max_examples != NULL && take_word(&text, ":first=")) {
            is_good = take_number(&text, &number) && number <= INT64_MAX;
            *out_max_examples = (int64_t)number;
        } else {
            is_good = false;
        }
    }
    return is_good;
}
