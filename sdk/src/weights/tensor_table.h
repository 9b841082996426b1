/*
 * tensor_table.h - a stream of float32 tensors in a file, by its manifest: where it lies, which
 * tensors it has, whether the file's chunks have their hashes.
 *
 * Needs no client and no round, so it serves any thread.
 */
#ifndef DUNLIN_SDK_TENSOR_TABLE_H
#define DUNLIN_SDK_TENSOR_TABLE_H

#include <dunlin/alloc.h>
#include <dunlin/learner.h>
#include <wire/manifest.h>

/* A stream: `reader` stands at its first tensor; where it begins in the file. */
typedef struct dunlin__base_stream {
    dunlin__manifest_reader reader;
    dunlin__stream stream;
    uint64_t offset;
} dunlin__base_stream;

/* MISMATCH if there is none of that name, UNSUPPORTED if it is not F32. */
DUNLIN_NODISCARD dunlin_status dunlin__base_find(const dunlin__manifest_source *source,
                                                 const char *name, dunlin__base_stream *out,
                                                 dunlin_error *error);

/* A manifest's float32 tensor as the learner sees it; the name is the caller's. */
void dunlin__tensor_of(const dunlin__tensor_entry *entry, const char *name,
                       dunlin_weights_tensor *out);

typedef struct dunlin__tensor_table {
    dunlin_weights_tensor *tensors; /* their names are in `names` */
    uint64_t *offsets;              /* of each, in the file */
    int32_t n_tensors;
    char *names;
    size_t names_bytes;
} dunlin__tensor_table;

/* The tensors of a stream; as dunlin__base_find(), and MEMORY. Freed by the next call, also after a
 * failure. */
DUNLIN_NODISCARD dunlin_status dunlin__tensor_table_build(const dunlin_alloc *alloc,
                                                          const dunlin__manifest_source *source,
                                                          const char *name,
                                                          dunlin__tensor_table *out,
                                                          dunlin_error *error);
void dunlin__tensor_table_free(const dunlin_alloc *alloc, dunlin__tensor_table *table);

/* Every chunk of every stream of the manifest, in the file: DATA if the file is too short, DIGEST
 * names the first chunk that is wrong by its number and `path`. */
DUNLIN_NODISCARD dunlin_status dunlin__chunks_verify(const dunlin__manifest_source *source, int fd,
                                                     const char *path, dunlin_error *error);

#endif
