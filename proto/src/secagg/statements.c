/*
 * statements.c - the bytes that devices sign, seal and derive keys from.
 *
 * Each begins with a tag of its own use and has a fixed length, so that none passes for another.
 * Numbers are big-endian.
 */
#include <mem/support.h>
#include <wire/secagg.h>

#include <string.h>

#define TAG_BYTES 24u
#define TAG_KEYS "dunlin.v1.secagg.keys"
#define TAG_SURVIVORS "dunlin.v1.secagg.alive"
#define TAG_SHARE "dunlin.v1.secagg.share"
#define TAG_PAIR "dunlin.v1.secagg.pair"
#define TAG_SELF "dunlin.v1.secagg.self"

/* A tag, zeros after it, two indices. */
#define CONTEXT_BYTES (TAG_BYTES + 8u)

_Static_assert(CONTEXT_BYTES + 3 * DUNLIN_SHA256_BYTES <= DUNLIN_SECAGG_STATEMENT_BYTES,
               "a statement fits");

static void put_index(uint8_t *out_bytes, uint32_t index)
{
    for (unsigned i = 0; i < 4; i++) {
        out_bytes[i] = (uint8_t)(index >> (24 - 8 * i));
    }
}

static void put_context(uint8_t out_bytes[CONTEXT_BYTES], const char *tag, uint32_t one,
                        uint32_t other)
{
    memset(out_bytes, 0, CONTEXT_BYTES);
    memcpy(out_bytes, tag, strnlen(tag, TAG_BYTES));
    put_index(out_bytes + TAG_BYTES, one);
    put_index(out_bytes + TAG_BYTES + 4, other);
}

static size_t append(uint8_t *out_bytes, size_t at, const uint8_t part[32])
{
    memcpy(out_bytes + at, part, 32);
    return at + 32;
}

size_t dunlin__secagg_key_statement(const uint8_t terms[DUNLIN_SHA256_BYTES], uint32_t peer_index,
                                    const uint8_t encryption_key[DUNLIN_X25519_BYTES],
                                    const uint8_t mask_key[DUNLIN_X25519_BYTES],
                                    uint8_t out_bytes[DUNLIN_SECAGG_STATEMENT_BYTES])
{
    put_context(out_bytes, TAG_KEYS, peer_index, 0);
    size_t n = append(out_bytes, CONTEXT_BYTES, terms);
    n = append(out_bytes, n, encryption_key);
    return append(out_bytes, n, mask_key);
}

size_t dunlin__secagg_survivor_statement(const uint8_t terms[DUNLIN_SHA256_BYTES],
                                         uint32_t peer_index,
                                         const uint8_t survivors_sha256[DUNLIN_SHA256_BYTES],
                                         uint8_t out_bytes[DUNLIN_SECAGG_STATEMENT_BYTES])
{
    put_context(out_bytes, TAG_SURVIVORS, peer_index, 0);
    const size_t n = append(out_bytes, CONTEXT_BYTES, terms);
    return append(out_bytes, n, survivors_sha256);
}

static dunlin_status derive(const uint8_t terms[DUNLIN_SHA256_BYTES], const uint8_t secret[32],
                            const uint8_t context[CONTEXT_BYTES],
                            uint8_t out_key[DUNLIN_AES256_BYTES], dunlin_error *error)
{
    const dunlin__hkdf_input input = {.salt = terms,
                                      .n_salt = DUNLIN_SHA256_BYTES,
                                      .secret = secret,
                                      .n_secret = 32,
                                      .info = context,
                                      .n_info = CONTEXT_BYTES};
    return dunlin__hkdf_sha256(&input, out_key, DUNLIN_AES256_BYTES, error);
}

dunlin_status dunlin__secagg_share_key(const uint8_t terms[DUNLIN_SHA256_BYTES],
                                       const uint8_t secret[DUNLIN_X25519_BYTES], uint32_t from,
                                       uint32_t to, uint8_t out_key[DUNLIN_AES256_BYTES],
                                       dunlin_error *error)
{
    uint8_t context[CONTEXT_BYTES];
    put_context(context, TAG_SHARE, from, to);
    return derive(terms, secret, context, out_key, error);
}

dunlin_status dunlin__secagg_pair_key(const uint8_t terms[DUNLIN_SHA256_BYTES],
                                      const uint8_t secret[DUNLIN_X25519_BYTES], uint32_t one,
                                      uint32_t other, uint8_t out_key[DUNLIN_AES256_BYTES],
                                      dunlin_error *error)
{
    uint8_t context[CONTEXT_BYTES];
    put_context(context, TAG_PAIR, one < other ? one : other, one < other ? other : one);
    return derive(terms, secret, context, out_key, error);
}

dunlin_status dunlin__secagg_self_key(const uint8_t terms[DUNLIN_SHA256_BYTES],
                                      const uint8_t seed[DUNLIN_SHAMIR_BYTES], uint32_t peer_index,
                                      uint8_t out_key[DUNLIN_AES256_BYTES], dunlin_error *error)
{
    uint8_t context[CONTEXT_BYTES];
    put_context(context, TAG_SELF, peer_index, 0);
    return derive(terms, seed, context, out_key, error);
}

/* What shares are sealed with beside the key: context and terms, in the clear. */
static void bind_shares(const uint8_t terms[DUNLIN_SHA256_BYTES], uint32_t from, uint32_t to,
                        uint8_t out_data[CONTEXT_BYTES + DUNLIN_SHA256_BYTES])
{
    put_context(out_data, TAG_SHARE, from, to);
    memcpy(out_data + CONTEXT_BYTES, terms, DUNLIN_SHA256_BYTES);
}

dunlin_status dunlin__secagg_seal(const uint8_t terms[DUNLIN_SHA256_BYTES],
                                  const uint8_t secret[DUNLIN_X25519_BYTES], uint32_t from,
                                  uint32_t to, const dunlin__secagg_shares *shares,
                                  uint8_t out_sealed[DUNLIN_SECAGG_SEALED_BYTES],
                                  dunlin_error *error)
{
    uint8_t key[DUNLIN_AES256_BYTES];
    uint8_t text[DUNLIN_SECAGG_SHARES_BYTES];
    uint8_t data[CONTEXT_BYTES + DUNLIN_SHA256_BYTES];
    bind_shares(terms, from, to, data);
    text[0] = shares->place;
    memcpy(text + 1, shares->key_share, DUNLIN_SHAMIR_BYTES);
    memcpy(text + 1 + DUNLIN_SHAMIR_BYTES, shares->seed_share, DUNLIN_SHAMIR_BYTES);
    dunlin_status status = dunlin__secagg_share_key(terms, secret, from, to, key, error);
    if (status == DUNLIN_OK) {
        status = dunlin__random_bytes(out_sealed, DUNLIN_GCM_NONCE_BYTES, error);
    }
    if (status == DUNLIN_OK) {
        const dunlin__gcm_binding binding = {
            .key = key, .nonce = out_sealed, .data = data, .n_data = sizeof(data)};
        status = dunlin__gcm_seal(&binding, text, sizeof(text), out_sealed + DUNLIN_GCM_NONCE_BYTES,
                                  error);
    }
    dunlin__wipe(key, sizeof(key));
    dunlin__wipe(text, sizeof(text));
    return status;
}

dunlin_status dunlin__secagg_open(const uint8_t terms[DUNLIN_SHA256_BYTES],
                                  const uint8_t secret[DUNLIN_X25519_BYTES], uint32_t from,
                                  uint32_t to, const uint8_t sealed[DUNLIN_SECAGG_SEALED_BYTES],
                                  dunlin__secagg_shares *out_shares, dunlin_error *error)
{
    uint8_t key[DUNLIN_AES256_BYTES];
    uint8_t text[DUNLIN_SECAGG_SHARES_BYTES] = {0};
    uint8_t data[CONTEXT_BYTES + DUNLIN_SHA256_BYTES];
    bind_shares(terms, from, to, data);
    dunlin_status status = dunlin__secagg_share_key(terms, secret, from, to, key, error);
    if (status == DUNLIN_OK) {
        const dunlin__gcm_binding binding = {
            .key = key, .nonce = sealed, .data = data, .n_data = sizeof(data)};
        status = dunlin__gcm_open(&binding, sealed + DUNLIN_GCM_NONCE_BYTES,
                                  sizeof(text) + DUNLIN_GCM_TAG_BYTES, text, error);
    }
    out_shares->place = text[0];
    memcpy(out_shares->key_share, text + 1, DUNLIN_SHAMIR_BYTES);
    memcpy(out_shares->seed_share, text + 1 + DUNLIN_SHAMIR_BYTES, DUNLIN_SHAMIR_BYTES);
    dunlin__wipe(key, sizeof(key));
    dunlin__wipe(text, sizeof(text));
    return status;
}
