/*
 * update_pack.h - the update in fewer bytes: packed as the plan says (wire/compress.h).
 *
 * Stages: the clipped difference, the choice of the largest if the plan wants those alone, rotation
 * and rounding at random, the gains that keep the decoded norm within the bound and, with feedback,
 * what is left below what there was. Every pass reads the difference anew, so beside the learner
 * and the base no more than the packer's memory is used; all that is drawn follows from the plan,
 * so a second pass, or a second try, gives the same bytes.
 */
#ifndef DUNLIN_SDK_UPDATE_PACK_H
#define DUNLIN_SDK_UPDATE_PACK_H

#include "update_clip.h"
#include "weights/stream_file.h"

#include <wire/compress.h>

typedef struct dunlin__update_pack {
    const dunlin__update_values *values;
    const dunlin__clip *clip;  /* settled */
    const int32_t *base_index; /* of the stream's tensors */
    int32_t n_tensors;
    dunlin__pack_options options;
    float *gains;           /* of each tensor */
    uint64_t *stored_bytes; /* likewise */
} dunlin__update_pack;

/* Makes room, and fills in what the plan says; MEMORY. The first four members are the caller's.
 * Follow by dunlin__update_pack_close(), also after a failure. */
dunlin_status dunlin__update_pack_open(dunlin__update_pack *pack);
void dunlin__update_pack_close(dunlin__update_pack *pack);

/* What is chosen, the gains and sizes, and how many bytes the stream takes; `block` has room for
 * DUNLIN_STREAM_BLOCK_FLOATS. LIMIT if that is more than the client sends a round, NUMERIC for a
 * value that cannot be packed. Then the bytes themselves; CALLBACK: the learner gave other weights.
 */
dunlin_status dunlin__update_pack_settle(dunlin__update_pack *pack, float *block,
                                         uint64_t *out_bytes);
dunlin_status dunlin__update_pack_run(dunlin__update_pack *pack, float *block,
                                      const dunlin__pack_sink *sink, uint64_t n_bytes);

/* Writes the stream "update", packed, into the file. LIMIT if it takes more than the client sends a
 * round, NUMERIC for a value that cannot be packed. */
dunlin_status dunlin__update_pack_write(dunlin__update_pack *pack, dunlin__stream_file *file);

#endif
