/*
 * data_common.c - what the loaders of data sets share: memory for examples, files of the folder,
 * clients by number.
 */
#include "data.h"

#include <mem/checked.h>
#include <mem/support.h>

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

void dunlin__data_set_shape(dunlin_dataset *set, int32_t channels, int32_t height, int32_t width)
{
    set->stored_channels = channels;
    set->stored_height = height;
    set->stored_width = width;
}

dunlin_status dunlin__data_alloc_labels(dunlin_dataset *set, int64_t n, dunlin_error *error)
{
    size_t n_fitting = 0;
    if (!dunlin__to_size((uint64_t)n, &n_fitting)) {
        return dunlin__fail(error, DUNLIN_MEMORY, "data", 0,
                            "%" PRId64 " examples of %zu bytes do not fit the address space", n,
                            dunlin__data_stored_bytes(set));
    }
    set->n = n;
    set->labels = dunlin__alloc_array(&set->alloc, (size_t)n, sizeof *set->labels);
    return set->labels != NULL ? DUNLIN_OK
                               : dunlin__fail(error, DUNLIN_MEMORY, "data", 0,
                                              "no memory for %" PRId64 " labels", n);
}

dunlin_status dunlin__data_alloc(dunlin_dataset *set, int64_t n, bool has_clients,
                                 dunlin_error *error)
{
    DUNLIN_TRY(dunlin__data_alloc_labels(set, n, error));
    set->pixels = dunlin__alloc_array(&set->alloc, (size_t)n, dunlin__data_stored_bytes(set));
    if (has_clients) {
        set->clients = dunlin__alloc_array(&set->alloc, (size_t)n, sizeof *set->clients);
    }
    if (set->pixels == NULL || (has_clients && set->clients == NULL)) {
        return dunlin__fail(error, DUNLIN_MEMORY, "data", 0,
                            "no memory for %" PRId64 " examples of %zu bytes", n,
                            dunlin__data_stored_bytes(set));
    }
    return DUNLIN_OK;
}

int64_t dunlin__data_limit(const dunlin_data_request *request, int64_t n)
{
    int64_t limit = request->options.max_examples;
    return limit > 0 && limit < n ? limit : n;
}

/* The path of folder/file, or where that is missing the same without ".gz"; false if there is
 * neither or the name is too long, and then `path` has the usual one. */
static bool find_file(const dunlin_data_request *request, const char *file, char *path)
{
    int length = snprintf(path, DUNLIN_DATA_PATH_BYTES, "%s/%s", request->folder, file);
    if (length < 0 || length >= DUNLIN_DATA_PATH_BYTES) {
        return false;
    }
    size_t end = (size_t)length;
    bool is_found = access(path, F_OK) == 0;
    if (!is_found && end > 3 && strcmp(path + end - 3, ".gz") == 0) {
        path[end - 3] = '\0';
        is_found = access(path, F_OK) == 0;
        if (!is_found) {
            path[end - 3] = '.';
        }
    }
    return is_found;
}

bool dunlin__data_has_file(const dunlin_data_request *request, const char *file)
{
    char path[DUNLIN_DATA_PATH_BYTES];
    return find_file(request, file, path);
}

dunlin_status dunlin__data_number_clients(dunlin_dataset *set, dunlin_error *error)
{
    const size_t n_numbers = DUNLIN_DATA_MAX_CLIENT + 1;
    int32_t *numbers = dunlin__alloc_zeroed(&set->alloc, n_numbers, sizeof *numbers);
    if (numbers == NULL) {
        return dunlin__fail(error, DUNLIN_MEMORY, "data", 0, "no memory to number the clients");
    }
    for (int64_t i = 0; i < set->n; i++) {
        numbers[set->clients[i]] = 1;
    }
    int32_t n_clients = 0;
    for (size_t client = 0; client < n_numbers; client++) {
        if (numbers[client] != 0) {
            numbers[client] = n_clients;
            n_clients++;
        }
    }
    for (int64_t i = 0; i < set->n; i++) {
        set->clients[i] = numbers[set->clients[i]];
    }
    set->n_clients = n_clients;
    dunlin__free_array(&set->alloc, numbers, n_numbers, sizeof *numbers);
    return DUNLIN_OK;
}

dunlin_status dunlin__data_open_file(dunlin_dataset *set, const dunlin_data_request *request,
                                     const char *file, char *path, dunlin_bytes *bytes,
                                     dunlin_error *error)
{
    if (strlen(request->folder) + 1 + strlen(file) >= DUNLIN_DATA_PATH_BYTES) {
        return dunlin__fail(error, DUNLIN_LIMIT, "data", 0,
                            "the data folder's name is too long: %zu bytes, the limit is %d",
                            strlen(request->folder), DUNLIN_DATA_PATH_BYTES);
    }
    (void)find_file(request, file, path); /* neither is there: the error names the usual one */
    return dunlin__bytes_open(bytes, path, &set->alloc, error);
}
