/*
 * formats.h - what the golden files of the client and of the wire hold, for what makes them and for
 * the tests that read them.
 *
 * Every number is one that all processors have to the bit: halves, quarters, whole numbers. What is
 * here belongs to files that are committed, so it is not changed; a new version of a format gets a
 * file, and what it holds, of its own.
 */
#ifndef DUNLIN_TESTS_FORMATS_H
#define DUNLIN_TESTS_FORMATS_H

#include "examples/examples.h"
#include "store/app_model_files.h"
#include "store/store.h"

#include <wire/compress.h>
#include <wire/messages.h>
#include <wire/tensor_stream.h>

/* --- files: formats_files.c; a failure ends the program --- */

#define FORMATS_PATH_BYTES 512
#define FORMATS_FILE_BYTES 65536
/* "FOLDER/NAME", which comes out again. */
const char *formats_path(const char *folder, const char *name, char out_path[FORMATS_PATH_BYTES]);
/* The bytes of a file that is shorter than `capacity`, and their number. */
size_t formats_read(const char *folder, const char *name, uint8_t *bytes, size_t capacity);
void formats_write(const char *folder, const char *name, const void *bytes, size_t n_bytes);
/* An empty database with small pages, so that the file is small; the library keeps their size. */
void formats_small_pages(const char *path);

/* --- the client's files: formats_client.c --- */

#define FORMATS_CLIENT "phone"
#define FORMATS_NOW_MS INT64_C(1700000000000)
#define FORMATS_N_EXAMPLES 6
#define FORMATS_EXAMPLE_BYTES 9
void formats_journal(dunlin__journal *out_journal);
dunlin__assignment formats_assignment(void);
/* The head of the app's model. */
dunlin__app_model_head formats_app_model(void);
/* Of the server that signs the assignment: 1, 2, ... 32. */
void formats_server_key(uint8_t out_private_key[DUNLIN_PRIVATE_KEY_BYTES]);
/* Opens the store of a folder with the rule and the clock of the golden file. */
dunlin_examples *formats_examples_open(const char *folder);
/* What the file of a round's own metrics holds. */
dunlin__commit_request formats_metrics(void);
uint8_t formats_example_byte(int64_t example, size_t at);

/* --- manifests and streams: formats_wire.c --- */

#define FORMATS_N_TENSORS 4
/* Tensor i of the base: a weight, a bias, a statistic, and one that is LOCAL. */
dunlin__tensor_entry formats_tensor(uint32_t index);
float formats_value(uint32_t tensor, uint64_t element);
/* Writes the manifest and the streams "update" and "control_delta" one after another, or of the
 * base "model", "weights". The lengths come out. */
#define FORMATS_STREAM_BYTES 4096
void formats_streams(dunlin__manifest_kind kind, uint8_t manifest[FORMATS_STREAM_BYTES],
                     size_t *out_manifest_bytes, uint8_t streams[FORMATS_STREAM_BYTES],
                     size_t *out_stream_bytes);

/* --- packed streams: formats_packed.c --- */

#define FORMATS_N_PACKINGS 8
#define FORMATS_PACKED_TENSORS 3
#define FORMATS_PACKED_DECODED (FORMATS_N_PACKINGS * 324)
size_t formats_packed_count(uint32_t tensor);
float formats_packed_value(uint32_t tensor, size_t element);
dunlin__packing formats_packing(uint32_t index);
/* The manifest of an update with a stream of each packing, the streams one after another, and what
 * a reader finds in them. */
void formats_packed(uint8_t manifest[FORMATS_STREAM_BYTES], size_t *out_manifest_bytes,
                    uint8_t streams[FORMATS_FILE_BYTES], size_t *out_stream_bytes,
                    float decoded[FORMATS_PACKED_DECODED]);

/* A delta, and the bytes that it leads to from those of formats_delta_from(). */
#define FORMATS_DELTA_BYTES 9000u
uint8_t formats_delta_from(size_t index);
void formats_delta(uint8_t delta[FORMATS_FILE_BYTES], size_t *out_delta_bytes,
                   uint8_t to[FORMATS_DELTA_BYTES]);

/* --- a stream of int8: formats_int8.c --- */

#define FORMATS_INT8_TENSORS 4
size_t formats_int8_count(uint32_t tensor);
float formats_int8_value(uint32_t tensor, size_t element);
/* The manifest of an update of whole weights in int8, and its one stream. The lengths come out. */
void formats_int8(uint8_t manifest[FORMATS_STREAM_BYTES], size_t *out_manifest_bytes,
                  uint8_t stream[FORMATS_STREAM_BYTES], size_t *out_stream_bytes);

/* --- masked updates, and terms of a secure aggregation: formats_masked.c --- */

#define FORMATS_MASKED_VALUES 300
#define FORMATS_MASKED_KEY_BYTES 32u
/* The last one is the weight. */
uint32_t formats_masked_element(size_t index);
void formats_masked_key(uint8_t out_key[FORMATS_MASKED_KEY_BYTES]);
/* The elements with the mask of the key, of 16, 24 or 32 bits, and their manifest. */
void formats_masked(unsigned ring_bits, uint8_t manifest[FORMATS_STREAM_BYTES],
                    size_t *out_manifest_bytes, uint8_t stream[FORMATS_STREAM_BYTES],
                    size_t *out_stream_bytes);
/* Terms of version 1, or of 2 with noise. */
dunlin__secagg_plan formats_secagg_plan(uint32_t version);

/* --- formats_make.c --- */

/* Writes today's files of these formats into a folder. */
void formats_make(const char *folder);

#endif
