/*
 * tools.h - what programs about the library need and an app does not: the data set "synthetic",
 * which needs no file, files that appear whole or not at all, and drawings of plans.
 *
 * They are a library of their own, dunlin_tools (CMake: dunlin::tools, pkg-config: dunlin-tools).
 *
 * Example: the synthetic training split; it is closed like any other.
 *
 * @code
 * dunlin_dataset *set = NULL;
 * dunlin_error error = {0};
 * dunlin_status status = dunlin_tools_dataset_open("synthetic", NULL, DUNLIN_SPLIT_TRAIN, NULL,
 *                                                  NULL, &set, &error);
 * printf("%s: %s\n", dunlin_status_name(status), error.text);
 * dunlin_dataset_close(set);
 * @endcode
 */
#ifndef DUNLIN_TOOLS_H
#define DUNLIN_TOOLS_H

#include <dunlin/dataset.h>
#include <dunlin/trainer_experimental.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * dunlin_dataset_open() that has "synthetic", too; each other name is opened just as there.
 *
 * @return as there.
 */
DUNLIN_NODISCARD DUNLIN_API dunlin_status dunlin_tools_dataset_open(
    const char *name, const char *folder, dunlin_split split, const dunlin_dataset_options *options,
    const dunlin_alloc *hooks, dunlin_dataset **out_dataset, dunlin_error *out_error);

/**
 * Reads what programs take as --validation: "N%" or "N" (examples), then any of ":writers" (whole
 * clients, as they are known), ":seed=S" and, where out_max_examples is not NULL, ":first=M" (of
 * the first M examples of the training split; 0 otherwise).
 *
 * @return whether it is so; *out_validation holds the seed that it came with where none is named.
 */
DUNLIN_API bool dunlin_tools_parse_validation(const char *text, dunlin_validation *out_validation,
                                              int64_t *out_max_examples);

/**
 * Writes a whole file as the library writes its own: beside its place, synchronised, renamed, so
 * that whatever fails the old file stays and nothing else is left.
 *
 * @return SPACE, IO with errno as the error's code; LIMIT for a path that is too long.
 */
DUNLIN_NODISCARD DUNLIN_API dunlin_status dunlin_tools_file_write(const char *path,
                                                                  const void *bytes, size_t n_bytes,
                                                                  dunlin_error *out_error);

/**
 * The plan as an SVG drawing, address (up) over steps (right), given in pieces of text: one
 * rectangle for each allocation, coloured by what it holds, hatched where it was recomputed.
 * `title` is escaped; NULL: one made from the plan.
 */
DUNLIN_API void dunlin_trainer_draw_plan(const dunlin_trainer *trainer, const char *title,
                                         dunlin_text_fn text_fn, void *ctx);

#ifdef __cplusplus
}
#endif

#endif
