/*
 * own.c - data sets of a user's own files, by the beginning of their names.
 */
#include "data/common/data.h"
#include "data/readers/folder.h"
#include "data/readers/own_rows.h"
#include "several_inputs.h"

#include <mem/support.h>

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const char npy_prefix[] = "npy:";
static const char csv_prefix[] = "csv:";
static const char folder_prefix[] = "folder:";

static bool begins(const char *name, const char *prefix)
{
    return strncmp(name, prefix, strlen(prefix)) == 0;
}

bool dunlin__data_is_own(const char *name)
{
    return begins(name, npy_prefix) || begins(name, csv_prefix) || begins(name, folder_prefix);
}

/* For people: the name of the first file without its folders. */
static void set_title(dunlin_dataset *set, const char *path)
{
    const char *slash = strrchr(path, '/');
    const char *file = slash != NULL && slash[1] != '\0' ? slash + 1 : path;
    size_t n = 0;
    for (; file[n] != '\0' && n + 1 < sizeof set->own_title; n++) {
        set->own_title[n] = file[n] < ' ' || file[n] > '~' ? '?' : file[n];
    }
    set->own_title[n] = '\0';
    set->title = set->own_title;
}

dunlin_status dunlin__data_load_own(dunlin_dataset *set, const char *name,
                                    const dunlin_data_request *request, dunlin_error *error)
{
    const bool is_csv = begins(name, csv_prefix);
    const bool is_npy = begins(name, npy_prefix);
    dunlin_own_spec spec;
    DUNLIN_TRY(dunlin__own_parse(&set->alloc, strchr(name, ':') + 1, &spec, error));
    set_title(set, spec.files[0]);
    dunlin_status status = DUNLIN_OK;
    if (spec.n_inputs > 0) {
        status = is_npy ? dunlin__several_load(set, request, &spec, error)
                        : dunlin__fail(error, DUNLIN_ARGUMENT, "data", 0,
                                       "inputs=%" PRId32 " goes with npy: alone", spec.n_inputs);
        dunlin__own_free(&set->alloc, &spec);
        return status;
    }
    if (begins(name, folder_prefix)) {
        status = dunlin__folder_load(set, request, &spec, error);
        dunlin__own_free(&set->alloc, &spec);
        return status;
    }
    if (!is_csv) {
        status = dunlin__own_npy_find_test(&spec, error);
    } else if (spec.n_files != 1) {
        status = dunlin__fail(error, DUNLIN_ARGUMENT, "data", 0,
                              "csv: expected one file, followed by test=FILE or test=N%%");
    }
    if (status == DUNLIN_OK) {
        status = dunlin__own_load(set, request, &spec,
                                  is_csv ? dunlin__own_read_csv : dunlin__own_read_npy, error);
    }
    dunlin__own_free(&set->alloc, &spec);
    return status;
}
