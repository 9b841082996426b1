/*
 * pack_orders.h - published ways to give blocks addresses, each by itself and written from its
 * description alone, and a check of a packing: independent implementations that share nothing with
 * the packer.
 */
#ifndef DUNLIN_TESTS_PACK_ORDERS_H
#define DUNLIN_TESTS_PACK_ORDERS_H

#include "pack/portfolio.h"

#define PACK_N_ORDERS 4

/* "melon", "size best fit", "size first fit", "start reuse". */
const char *pack_order_name(uint32_t order);

/*
 * The height of one of them; the blocks' offsets are left alone. Melon: longest live range first,
 * then size, best fit (Wang et al., MobiSys 2022); size order, best fit (Pisarchyk and Lee, 2020);
 * size order, first fit (TensorFlow Lite Micro); start order on a stack, reusing the range of a
 * dead block of exactly the same size (NNTrainer's first planner).
 */
uint64_t pack_by_order(uint32_t order, const dunlin_pack_block *blocks, uint32_t n_blocks);

/* No two blocks alive at one step share a byte, and none ends above the height. */
bool pack_is_apart(const dunlin_pack_block *blocks, uint32_t n_blocks, uint64_t height);

#endif
