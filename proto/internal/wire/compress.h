/*
 * compress.h - packed streams: updates and bases in a fraction of their float32 bytes, with a norm
 * that is known exactly.
 *
 * A Packing (common.proto) says what the bytes mean; FORMATS.md has the tables. The writer is a
 * packer: tensor by tensor it takes float32 in pieces of any size and gives bytes; what it draws
 * follows from its seed alone, so a second pass over the same values gives the same bytes. The
 * reader is an unpacker, which gives the values back in blocks.
 *
 * How a bound on the decoded norm is kept: rounding at random may lengthen a vector, so each
 * averaged tensor begins with a gain in (0, 1], by which the decoder multiplies every value of it
 * at the very end. A first pass with gain 1 and no sink measures the sizes and the norm of what
 * would be decoded, in the decoder's own arithmetic; dunlin__packing_gain() makes of it the gain
 * of the second pass. An update whose decoded norm is within the bound anyway has gain 1 and
 * stays unbiased; of a longer one the decoded vector is an unbiased picture of the update times
 * its gain.
 *
 * The arithmetic is float32 without contraction and in a stated order, and sums are kept in a fixed
 * order, so both sides have the same bits on every processor of IEEE arithmetic.
 *
 * Tensors of rule AVERAGE are packed; STATISTIC ones go as plain float32; LOCAL ones are refused.
 *
 * A packer or an unpacker allocates once, through the hooks, at most DUNLIN_PACK_MEMORY_BYTES; no
 * size that comes from outside is ever allocated. Each is used by one thread at a time.
 */
#ifndef DUNLIN_WIRE_COMPRESS_H
#define DUNLIN_WIRE_COMPRESS_H

#include <dunlin/alloc.h>
#include <wire/common.pb.h>
#include <wire/manifest.pb.h>

#define DUNLIN_PACK_VERSION 1u
#define DUNLIN_PACK_SEED_BYTES 16u /* of the rotation and of RANDOM: in the Packing */
#define DUNLIN_PACK_DRAW_BYTES 32u /* of the rounding: stays where it is drawn */
#define DUNLIN_PACK_BLOCK_MIN 64u
#define DUNLIN_PACK_BLOCK_MAX 8192u
#define DUNLIN_PACK_KEPT_BLOCK_MAX 1024u     /* with a selection */
#define DUNLIN_PACK_ELEMENTS_MAX 0x7fffffffu /* of a tensor, and of a stream */
#define DUNLIN_PACK_MEMORY_BYTES 55296u

typedef dunlin_v1_packing_t dunlin__packing;

/* ---- what goes with what ---- */

/* Whether a packing can be read and written here: VERSION for another version, PROTOCOL with the
 * member for what breaks a rule or does not go with the rest. */
DUNLIN_NODISCARD dunlin_status dunlin__packing_check(const dunlin__packing *packing,
                                                     dunlin_error *error);

/* Whether two packings are the same in everything, or in everything but seed and round: what was
 * agreed, and what came. MISMATCH names the member and both values. */
DUNLIN_NODISCARD dunlin_status dunlin__packing_compare(const dunlin__packing *agreed,
                                                       const dunlin__packing *found, bool with_seed,
                                                       dunlin_error *error);

/* The least and the most bytes that `n_elements` of a rule can take; LIMIT for more elements than
 * a packed tensor can have. The packing has been checked. */
DUNLIN_NODISCARD dunlin_status dunlin__packing_bytes(const dunlin__packing *packing,
                                                     dunlin_v1_rule_t rule, uint64_t n_elements,
                                                     uint64_t *out_least, uint64_t *out_most,
                                                     dunlin_error *error);

/* How many of `n_elements` a selection keeps: at least 1 of any. */
uint64_t dunlin__packing_kept(const dunlin__packing *packing, uint64_t n_elements);

/* ---- norms ---- */

/* A sum of squares in a fixed order: whatever the pieces, the same bits. Begin with zeros. */
typedef struct dunlin__norm {
    double lanes[8];
    uint64_t n_values;
} dunlin__norm;

void dunlin__norm_add(dunlin__norm *norm, const float *values, size_t n_values);
/* As if so many zeros were added. */
void dunlin__norm_skip(dunlin__norm *norm, uint64_t n_zeros);
double dunlin__norm_square(const dunlin__norm *norm);
/* Whether the root of `square` is at most `bound`; for both sides of the wire alike. False for
 * what is not a number. */
bool dunlin__norm_is_within(double square, float bound);

/* The gain that brings a norm, of which `square` was measured with gain 1, to within `bound`: 1
 * when it is there already, else a float32 so far below bound / norm that no rounding of the
 * products can pass the bound. ARGUMENT unless the bound is at least 1e-15 and finite, NUMERIC for
 * a square that is not finite or so large that the gain would be below 1e-20. */
DUNLIN_NODISCARD dunlin_status dunlin__packing_gain(double square, float bound, float *out_gain,
                                                    dunlin_error *error);

/* ---- the largest: three passes over the values before anything is packed ---- */

/* Which magnitudes are sent: those above `key`, and the first `n_ties` of those equal to it, in the
 * stream's order. Magnitudes are the lower 31 bits of a float32. */
typedef struct dunlin__pack_choice {
    uint32_t key;
    uint64_t n_ties;
} dunlin__pack_choice;

#define DUNLIN_PACK_CHOICE_PASSES 3u

typedef struct dunlin__pack_chooser {
    uint32_t pass;
    uint32_t prefix;
    uint64_t n_kept; /* still to be found below the prefixes above */
    uint32_t counts[2048];
} dunlin__pack_chooser;

/* `n_kept` from dunlin__packing_kept() over the elements of all AVERAGE tensors. Then, three times:
 * add all their values, end the pass. */
void dunlin__pack_chooser_begin(dunlin__pack_chooser *chooser, uint64_t n_kept);
void dunlin__pack_chooser_add(dunlin__pack_chooser *chooser, const float *values, size_t n_values);
/* After the last pass `out_choice` is filled; values of 0 are never chosen. */
void dunlin__pack_chooser_end_pass(dunlin__pack_chooser *chooser, dunlin__pack_choice *out_choice);

/* ---- packing ---- */

/* Where packed bytes go, a piece at a time of at most 64 KiB. What it returns other than OK ends
 * the packer and is passed on. */
typedef struct dunlin__pack_sink {
    void *ctx;
    dunlin_status (*write_fn)(void *ctx, const void *data, size_t n_bytes, dunlin_error *error);
} dunlin__pack_sink;

/* Where decoded values go, if someone wants them: of each AVERAGE tensor all of its elements in
 * order, as the other side will see them. Of RANDOM and LARGEST those that are not sent are 0. */
typedef struct dunlin__pack_mirror {
    void *ctx;
    dunlin_status (*values_fn)(void *ctx, const float *values, size_t n_values,
                               dunlin_error *error);
} dunlin__pack_mirror;

typedef struct dunlin__pack_options {
    dunlin__packing packing;
    uint8_t draws[DUNLIN_PACK_DRAW_BYTES]; /* the seed of the rounding */
    dunlin__pack_choice choice;            /* of LARGEST */
    dunlin__pack_sink sink;                /* write_fn NULL: measure alone */
    dunlin__pack_mirror mirror;            /* values_fn NULL: none */
} dunlin__pack_options;

typedef struct dunlin__tensor_packer dunlin__tensor_packer;

/* `alloc` may be NULL. Errors of dunlin__packing_check(), MEMORY. Close it in any case. */
DUNLIN_NODISCARD dunlin_status dunlin__tensor_packer_open(const dunlin__pack_options *options,
                                                          const dunlin_alloc *alloc,
                                                          dunlin__tensor_packer **out_packer,
                                                          dunlin_error *error);

/* The next tensor: its index in the stream's table, which goes into what is drawn; `gain` in
 * (0, 1], 1 unless the norm has to be lowered; not used of a STATISTIC. STATE while the one before
 * has elements missing. */
DUNLIN_NODISCARD dunlin_status dunlin__tensor_packer_tensor(dunlin__tensor_packer *packer,
                                                            uint32_t index, dunlin_v1_rule_t rule,
                                                            uint64_t n_elements, float gain,
                                                            dunlin_error *error);

/* Its next values. NUMERIC with tensor and element for one that is not finite, or that does not fit
 * the packing (F16); LIMIT for more than the tensor has. A failure is final. */
DUNLIN_NODISCARD dunlin_status dunlin__tensor_packer_values(dunlin__tensor_packer *packer,
                                                            const float *values, size_t n_values,
                                                            dunlin_error *error);

/* Ends the tensor: its stored bytes for the manifest, and the square of the norm of its decoded
 * values (0 of a STATISTIC); each may be NULL. */
DUNLIN_NODISCARD dunlin_status dunlin__tensor_packer_tensor_end(dunlin__tensor_packer *packer,
                                                                uint64_t *out_stored_bytes,
                                                                double *out_square,
                                                                dunlin_error *error);

/* Of all AVERAGE tensors so far, decoded: what the other side will find. */
double dunlin__tensor_packer_square(const dunlin__tensor_packer *packer);
/* Of all tensors so far: the stream's total. */
uint64_t dunlin__tensor_packer_bytes(const dunlin__tensor_packer *packer);
/* NULL is fine. */
void dunlin__tensor_packer_close(dunlin__tensor_packer *packer);

/* ---- unpacking ---- */

/* Where packed bytes come from, in order: fills `buffer` with exactly `n_bytes`, or fails and fills
 * the error. At most 64 KiB are asked for, and never more than the tensor has left. */
typedef struct dunlin__unpack_source {
    void *ctx;
    dunlin_status (*read_fn)(void *ctx, void *buffer, size_t n_bytes, dunlin_error *error);
} dunlin__unpack_source;

typedef struct dunlin__tensor_unpacker dunlin__tensor_unpacker;

/* As for the packer; `packing` is copied. */
DUNLIN_NODISCARD dunlin_status dunlin__tensor_unpacker_open(const dunlin__packing *packing,
                                                            const dunlin__unpack_source *source,
                                                            const dunlin_alloc *alloc,
                                                            dunlin__tensor_unpacker **out_unpacker,
                                                            dunlin_error *error);

/* The next tensor, as the manifest has it; sizes that do not go together are MISMATCH before a byte
 * is read. STATE while the one before has values left. */
DUNLIN_NODISCARD dunlin_status dunlin__tensor_unpacker_tensor(dunlin__tensor_unpacker *unpacker,
                                                              uint32_t index, dunlin_v1_rule_t rule,
                                                              uint64_t n_elements,
                                                              uint64_t stored_bytes,
                                                              dunlin_error *error);

/* Its next values, at most DUNLIN_PACK_BLOCK_MAX, in the unpacker's own memory until the next call;
 * 0 of them after the last, when every stored byte has been used. PROTOCOL, NUMERIC or MISMATCH
 * with tensor, element and value for bytes that break a rule. A failure is final. */
DUNLIN_NODISCARD dunlin_status dunlin__tensor_unpacker_next(dunlin__tensor_unpacker *unpacker,
                                                            const float **out_values,
                                                            size_t *out_n_values,
                                                            dunlin_error *error);

/* Of all AVERAGE tensors so far: the same bits as the packer's. */
double dunlin__tensor_unpacker_square(const dunlin__tensor_unpacker *unpacker);
void dunlin__tensor_unpacker_close(dunlin__tensor_unpacker *unpacker);

#endif
