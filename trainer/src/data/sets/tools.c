/*
 * tools.c - the library of tools: data sets that need no file beside those that are read, and
 * files that are written whole.
 */
#include "data/common/data.h"

#include <dunlin/tools.h>
#include <mem/outfile.h>

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
