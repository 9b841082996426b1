/*
 * manifest_rules.h - the rules of a manifest, record by record, for its writer and its reader.
 *
 * judge says whether a record may come next and changes nothing; note records that it came.
 */
#ifndef DUNLIN_PROTO_MANIFEST_RULES_H
#define DUNLIN_PROTO_MANIFEST_RULES_H

#include <wire/manifest.h>

/* The field of records in Manifest, and the version. */
#define MANIFEST_VERSION 1u
#define MANIFEST_VERSION_TAG 1u
#define MANIFEST_RECORDS_TAG 2u

dunlin_status dunlin__manifest_judge_stream(const dunlin__manifest_check *check,
                                            const dunlin__stream *stream, dunlin_error *error);
dunlin_status dunlin__manifest_judge_tensor(const dunlin__manifest_check *check,
                                            const dunlin__tensor_entry *tensor,
                                            dunlin_error *error);
dunlin_status dunlin__manifest_judge_chunk(const dunlin__manifest_check *check,
                                           const uint8_t sha256[DUNLIN_SHA256_BYTES],
                                           dunlin_error *error);
/* Whether the manifest may end now. */
dunlin_status dunlin__manifest_judge_end(const dunlin__manifest_check *check, dunlin_error *error);

void dunlin__manifest_note_stream(dunlin__manifest_check *check, const dunlin__stream *stream);
void dunlin__manifest_note_tensor(dunlin__manifest_check *check,
                                  const dunlin__tensor_entry *tensor);
void dunlin__manifest_note_chunk(dunlin__manifest_check *check);

#endif
