/*
 * down.h - a model in fewer bytes on its way down: what a round's devices begin from, in all the
 * forms in which it can be fetched.
 *
 * The server's own model stays as it is. Of it one packed base is made, rounded at random by a seed
 * that follows from the model: every device of a round has the same one, and a model that stays as
 * it was has the same one again. What the packed bytes decode to is the base of the round, for all:
 * devices that do not unpack fetch just that as float32. Beside it lies a delta from the packed
 * base of the round before, for those that have kept that.
 */
#ifndef DUNLIN_SERVER_DOWN_H
#define DUNLIN_SERVER_DOWN_H

#include "object_file.h"

/* NNNNNN.packed, NNNNNN.delta, each with ".manifest" behind, and the base as models.h has it. */
#define DUNLIN_DOWN_PACKED "packed"
#define DUNLIN_DOWN_DELTA "delta"

/* The forms of one base. */
typedef struct dunlin__down {
    dunlin__published base; /* float32 */
    dunlin__object_file packed;
    dunlin__object_file delta;                /* none if it would not be worth it */
    uint8_t from_sha256[DUNLIN_SHA256_BYTES]; /* of the delta: the manifest of the base before */
} dunlin__down;

/* What a base is made of, and where it goes. */
typedef struct dunlin__down_place {
    const char *models; /* the folder with ROUND.weights, and ROUND.control with SCAFFOLD */
    const char *folder; /* of the bases */
    uint64_t round;
    const dunlin__layout *layout;
    const dunlin__packing *packing; /* as it goes into the manifest */
    const dunlin_alloc *alloc;
} dunlin__down_place;

/* Makes the base of a published model. The same model gives the same bytes. The base's manifest is
 * written last. NUMERIC: a value that the packing cannot have. `out_down` is freed by
 * dunlin__down_free(). */
DUNLIN_NODISCARD dunlin_status dunlin__down_make(const dunlin__down_place *place,
                                                 const dunlin__published *model,
                                                 dunlin__down **out_down, dunlin_error *error);

/* Takes up what was made before; MISMATCH, IO, DATA ... if it is not whole, or of another packing:
 * then the caller packs the model anew. */
DUNLIN_NODISCARD dunlin_status dunlin__down_load(const dunlin__down_place *place,
                                                 dunlin__down **out_down, dunlin_error *error);

/* Removes what says that the base of a round is whole: its model is about to be replaced. */
void dunlin__down_remove(const char *folder, uint64_t round);

/* NULL is fine. */
void dunlin__down_free(dunlin__down *down, const dunlin_alloc *alloc);

#endif
