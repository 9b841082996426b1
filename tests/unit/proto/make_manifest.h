/*
 * make_manifest.h - streams, tensors and hashes of manifests, and a whole one.
 */
#ifndef DUNLIN_TESTS_MAKE_MANIFEST_H
#define DUNLIN_TESTS_MAKE_MANIFEST_H

#include <wire/manifest.h>

#define CHUNK DUNLIN_WIRE_CHUNK_DEFAULT_BYTES

dunlin__stream test_make_stream(const char *name, dunlin_v1_encoding_t encoding,
                                uint64_t total_bytes, uint32_t n_tensors);
dunlin__tensor_entry test_make_tensor(const char *name, uint64_t n_elements, uint64_t bytes);
/* What stands for the hash of a chunk. */
void test_hash_for(uint32_t number, uint8_t *sha256);
dunlin_status test_put_chunks(dunlin__manifest_writer *writer, uint32_t n_chunks,
                              dunlin_error *error);
/* A manifest of the model file and weights of `n_tensors` tensors of 70,000 elements. */
size_t test_write_sample(uint8_t *bytes, size_t capacity, uint32_t n_tensors);

#endif
