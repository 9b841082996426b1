/*
 * compress.h - the key "compress" of a task: in how many bytes updates go up, and models down.
 */
#ifndef DUNLIN_SERVER_COMPRESS_H
#define DUNLIN_SERVER_COMPRESS_H

#include "task.h"

/*
 * Reads words joined by +: one of f16, bf16, int2 to int8, bit (one bit an entry) and f32; topk:F
 * or randk:F, the part of the entries that is sent; rotate; entropy. The packing has neither seed
 * nor round yet; "f32" alone is none, and *out_is_packed false. DATA names the word, `where` begins
 * the text.
 */
DUNLIN_NODISCARD dunlin_status dunlin__compress_parse(const char *text, const char *where,
                                                      dunlin__packing *out_packing,
                                                      bool *out_is_packed, dunlin_error *error);

/* The packing of one device's update in a round: with what its seed is needed for. */
dunlin__packing dunlin__compress_of(const dunlin__server_task *task, uint64_t round,
                                    uint64_t work_seed);

/* The same words for what goes down, of which every entry is needed: f16, bf16, int2 to int8, with
 * rotate and entropy. DATA names the word that is not one of them. */
DUNLIN_NODISCARD dunlin_status dunlin__compress_parse_down(const char *text, const char *where,
                                                           dunlin__packing *out_packing,
                                                           bool *out_is_packed,
                                                           dunlin_error *error);

/* The packing of every base of the task: one rotation, so that a base is like the one before. */
dunlin__packing dunlin__compress_of_base(const dunlin__server_task *task);

/* The most bytes that a packed update of these tensors takes, LOCAL ones left out. */
DUNLIN_NODISCARD dunlin_status dunlin__compress_most(const dunlin__server_task *task,
                                                     const dunlin__tensor_entry *tensors,
                                                     uint32_t n_tensors, uint64_t *out_bytes,
                                                     dunlin_error *error);

#endif
