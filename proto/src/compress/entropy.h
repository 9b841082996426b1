/*
 * entropy.h - a block of small numbers in about as many bits as their frequencies allow: range
 * asymmetric numeral systems (Duda, "Asymmetric numeral systems", 2013) with a byte-wise state (as
 * in Giesen's rans_byte, public domain) and one table of frequencies for each block.
 *
 * Numbers that a random rotation has spread have no structure but their frequencies, so a general
 * compressor gains nothing more, and would need hundreds of KiB beside the model.
 */
#ifndef DUNLIN_PROTO_ENTROPY_H
#define DUNLIN_PROTO_ENTROPY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DUNLIN_ENTROPY_SLOTS 4096u /* the frequencies of a block sum to this */

/* Codes `n` numbers (1 to 8,192, each below 256) in fewer than `room` bytes (at most 8,192), which
 * come to lie at the head of `out_bytes`; 0 if they do not fit. */
size_t dunlin__entropy_pack(const uint8_t *numbers, size_t n, uint8_t *out_bytes, size_t room);

/* Gives `n` numbers below `n_symbols` (at most 256) back, with `slots` as working memory. False
 * unless the bytes are just theirs; no byte beyond `n_bytes` is looked at. */
bool dunlin__entropy_unpack(const uint8_t *bytes, size_t n_bytes, size_t n, unsigned n_symbols,
                            uint8_t slots[DUNLIN_ENTROPY_SLOTS], uint8_t *out_numbers);

#endif
