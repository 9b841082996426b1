/*
 * bench_secagg.c - what a secure aggregation costs a device and the server, in processor time and
 * memory.
 *
 *   bench_secagg [VALUES [NEIGHBOURS [DROPPED_PERCENT]]]     (1000000 100 30)
 *
 * One more device than NEIGHBOURS, everybody a neighbour, a ring of 32 bits, with the consistency
 * round; the given part of them drops out after they sent shares, which is the dearest moment. All
 * sides by PSA, as on a device. Prints a device's time by parts (the mean of those that stay), its
 * most bytes by the hooks and with its bodies, the server's time a device, bytes on the wire, and
 * what noise before the mask costs a value, of either kind at some scales; ends with 1 if the sum
 * is not that of the vectors.
 */
#include <dunlin/alloc.h>
#include <wire/secagg_noise.h>
#include <wire/signature.h>

#include <secagg/secagg_client.h>
#include <secagg/secagg_server.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define N_STEPS 5

typedef struct device {
    dunlin__secagg_client *client;
    uint8_t private_key[DUNLIN_PRIVATE_KEY_BYTES];
    uint8_t public_key[DUNLIN_PUBLIC_KEY_BYTES];
    bool is_lost;
    uint8_t *request;
    size_t n_request;
} device;

typedef struct bench {
    dunlin__secagg_plan plan;
    uint32_t n;
    device *devices;
    dunlin__secagg_server *server;
    uint8_t *answer;
    uint32_t *plain;              /* the sum of the vectors that are folded */
    double client_s[N_STEPS + 1]; /* by step; 0: the mask */
    double server_s;
    size_t now_bytes;
    size_t most_bytes;
    size_t body_bytes; /* the longest request and answer of a device together */
    uint64_t wire_bytes;
} bench;

static void must(dunlin_status status, const dunlin_error *error)
{
    if (status != DUNLIN_OK) {
        fprintf(stderr, "bench_secagg: %s\n", error->text);
        exit(1);
    }
}

static double seconds(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void *count_alloc(void *ctx, size_t n_bytes, size_t align)
{
    bench *all = ctx;
    all->now_bytes += n_bytes;
    all->most_bytes = all->now_bytes > all->most_bytes ? all->now_bytes : all->most_bytes;
    return aligned_alloc(align, (n_bytes + align - 1) / align * align);
}

static void count_free(void *ctx, void *memory, size_t n_bytes)
{
    bench *all = ctx;
    all->now_bytes -= memory != NULL ? n_bytes : 0;
    free(memory);
}

static dunlin_status sign(void *ctx, const uint8_t *message, size_t n_bytes,
                          uint8_t out_signature[DUNLIN_SIGNATURE_BYTES], dunlin_error *error)
{
    const device *signer = ctx;
    return dunlin__sign(signer->private_key, message, n_bytes, out_signature, error);
}

/* An element of a device's vector: any numbers that both sides of the comparison can make. */
static uint32_t element_of(uint32_t index, uint64_t i)
{
    return (uint32_t)(i * 2654435761u) ^ (index * 40503u);
}

static void open_all(bench *all, uint32_t dropped_percent)
{
    dunlin_error error = {0};
    const dunlin_alloc counted = {.ctx = all, .alloc_fn = count_alloc, .free_fn = count_free};
    const dunlin__secagg_server_options options = {
        .plan = &all->plan, .wish = {.security_bits = 40.0, .failure_bits = 20.0}};
    must(dunlin__secagg_server_open(&options, &all->server, &error), &error);
    for (uint32_t i = 0; i < all->n; i++) {
        device *one = &all->devices[i];
        dunlin__secagg_plan plan = all->plan;
        plan.peer_index = i + 1;
        one->request = malloc(DUNLIN_WIRE_BODY_BYTES);
        one->is_lost = i > 0 && (uint64_t)i * dropped_percent / 100 !=
                                    (uint64_t)(i - 1) * dropped_percent / 100;
        must(dunlin__key_generate(one->private_key, one->public_key, &error), &error);
        dunlin__secagg_client_options mine = {.plan = &plan, .ctx = one, .sign_fn = sign};
        mine.alloc = i == 0 ? &counted : NULL; /* the first stays, and is counted */
        memcpy(mine.device_key, one->public_key, sizeof(mine.device_key));
        const double start = seconds();
        must(dunlin__secagg_client_open(&mine, &one->client, &error), &error);
        all->client_s[DUNLIN_V1_SECAGG_STEP_ADVERTISE] += one->is_lost ? 0.0 : seconds() - start;
    }
}

typedef struct vector_source {
    const uint8_t *bytes;
} vector_source;

static dunlin_status read_vector(void *ctx, uint8_t *buffer, size_t n_bytes, dunlin_error *error)
{
    vector_source *from = ctx;
    (void)error;
    memcpy(buffer, from->bytes, n_bytes);
    from->bytes += n_bytes;
    return DUNLIN_OK;
}

static void mask(bench *all, uint32_t index, uint8_t *packed)
{
    static uint32_t block[DUNLIN_SECAGG_BLOCK];
    const uint64_t n_all = dunlin__secagg_elements(&all->plan);
    const uint8_t name[DUNLIN_SHA256_BYTES] = {1};
    device *one = &all->devices[index];
    dunlin_error error = {0};
    for (uint64_t at = 0; at < n_all; at += DUNLIN_SECAGG_BLOCK) {
        const size_t n =
            n_all - at < DUNLIN_SECAGG_BLOCK ? (size_t)(n_all - at) : DUNLIN_SECAGG_BLOCK;
        for (size_t i = 0; i < n; i++) {
            block[i] = element_of(index, at + i);
            all->plain[at + i] += block[i];
        }
        const double start = seconds();
        must(dunlin__secagg_client_mask(one->client, block, n, packed + at * 4, &error), &error);
        all->client_s[0] += seconds() - start;
    }
    must(dunlin__secagg_client_mask_end(one->client, name, &error), &error);
}

static bool takes_part(const bench *all, uint32_t index, uint32_t step)
{
    return !all->devices[index].is_lost || step < DUNLIN_V1_SECAGG_STEP_MASK;
}

static void send_all(bench *all, uint32_t step, uint8_t *packed)
{
    dunlin_error error = {0};
    for (uint32_t i = 0; i < all->n; i++) {
        device *one = &all->devices[i];
        if (!takes_part(all, i, step)) {
            continue;
        }
        if (step == DUNLIN_V1_SECAGG_STEP_MASK) {
            mask(all, i, packed);
        }
        double start = seconds();
        must(dunlin__secagg_client_write(one->client, one->request, DUNLIN_WIRE_BODY_BYTES,
                                         &one->n_request, &error),
             &error);
        all->client_s[step] += one->is_lost ? 0.0 : seconds() - start;
        start = seconds();
        must(dunlin__secagg_server_take(all->server, i + 1, one->public_key, one->request,
                                        one->n_request, &error),
             &error);
        if (step == DUNLIN_V1_SECAGG_STEP_MASK) {
            vector_source from = {packed};
            must(dunlin__secagg_server_fold(all->server, i + 1, read_vector, &from, &error),
                 &error);
            all->wire_bytes += 4 * dunlin__secagg_elements(&all->plan);
        }
        all->server_s += seconds() - start;
        all->wire_bytes += one->n_request;
    }
}

static void answer_all(bench *all, uint32_t step)
{
    dunlin_error error = {0};
    for (uint32_t i = 0; i < all->n; i++) {
        device *one = &all->devices[i];
        size_t n_bytes = 0;
        uint64_t retry_ms = 0;
        if (!takes_part(all, i, step)) {
            continue;
        }
        double start = seconds();
        must(dunlin__secagg_server_answer(all->server, &(dunlin__secagg_asked){i + 1, step, 0},
                                          all->answer, DUNLIN_WIRE_BODY_BYTES, &n_bytes, &error),
             &error);
        all->server_s += seconds() - start;
        start = seconds();
        must(dunlin__secagg_client_read(one->client, all->answer, n_bytes, &retry_ms, &error),
             &error);
        all->client_s[step] += one->is_lost ? 0.0 : seconds() - start;
        all->wire_bytes += n_bytes;
        const size_t both = n_bytes + one->n_request;
        all->body_bytes = i == 0 && both > all->body_bytes ? both : all->body_bytes;
    }
}

static void run_all(bench *all)
{
    dunlin_error error = {0};
    uint8_t *packed = malloc((size_t)dunlin__secagg_elements(&all->plan) * 4);
    for (uint32_t step = DUNLIN_V1_SECAGG_STEP_ADVERTISE; step <= DUNLIN_V1_SECAGG_STEP_UNMASK;
         step++) {
        send_all(all, step, packed);
        double start = seconds();
        must(dunlin__secagg_server_advance(all->server, &error), &error);
        all->server_s += seconds() - start;
        if (step != DUNLIN_V1_SECAGG_STEP_UNMASK) {
            answer_all(all, step);
        }
    }
    free(packed);
    const double start = seconds();
    must(dunlin__secagg_server_unmask(all->server, &error), &error);
    all->server_s += seconds() - start;
}

static int tell(const bench *all)
{
    static const char *const names[] = {"mask",  "advertise",   "share",
                                        "named", "consistency", "unmask"};
    const uint64_t n_elements = dunlin__secagg_elements(&all->plan);
    const uint32_t n_stay = dunlin__secagg_server_count(all->server, DUNLIN_V1_SECAGG_STEP_MASK);
    const uint32_t *sum = dunlin__secagg_server_sum(all->server);
    double client_s = 0.0;
    for (uint32_t i = 0; i <= N_STEPS; i++) {
        client_s += all->client_s[i] / n_stay;
        printf("device, %s: %.4f s\n", names[i], all->client_s[i] / n_stay);
    }
    printf("device, all: %.4f s of processor time, %u neighbours, %llu elements of 32 bits\n",
           client_s, all->plan.n_neighbours, (unsigned long long)n_elements);
    const size_t block_bytes = DUNLIN_SECAGG_BLOCK * sizeof(uint32_t);
    printf(
        "device, memory: %zu bytes by the hooks, beside it a block of %zu or bodies of %zu: %zu\n",
        all->most_bytes, block_bytes, all->body_bytes,
        all->most_bytes + (block_bytes > all->body_bytes ? block_bytes : all->body_bytes));
    printf("server: %.4f s of processor time a device; %u of %u devices dropped out\n",
           all->server_s / all->n, all->n - n_stay, all->n);
    printf("wire: %.0f bytes a device, the vector among them\n",
           (double)all->wire_bytes / (double)all->n);
    const bool is_right = sum != NULL && memcmp(sum, all->plain, (size_t)n_elements * 4) == 0;
    printf("sum: %s\n", is_right ? "that of the vectors, to the bit" : "WRONG");
    return is_right ? 0 : 1;
}

/* Draws of one kind and scale. */
static void tell_draws(dunlin_v1_secagg_noise_t kind, uint32_t scale, uint64_t n_values)
{
    static uint32_t block[DUNLIN_SECAGG_BLOCK];
    const dunlin__secagg_plan plan = {.noise_kind = kind, .noise_scale = scale};
    dunlin__secagg_noise noise;
    dunlin_error error = {0};
    must(dunlin__secagg_noise_begin(&plan, &noise, &error), &error);
    const double start = seconds();
    uint64_t n_drawn = 0;
    for (; n_drawn < n_values; n_drawn += DUNLIN_SECAGG_BLOCK) {
        must(dunlin__secagg_noise_add(&noise, block, DUNLIN_SECAGG_BLOCK, &error), &error);
    }
    printf("noise, %s of scale %u: %.1f ns a value\n",
           kind == DUNLIN_V1_SECAGG_NOISE_SKELLAM ? "skellam" : "gaussian", scale,
           1e9 * (seconds() - start) / (double)n_drawn);
    dunlin__secagg_noise_end(&noise);
}

static void tell_noise(uint64_t n_values)
{
    static const uint32_t scales[] = {16, 256, 1024, 1u << 20};
    for (size_t i = 0; i < sizeof scales / sizeof scales[0]; i++) {
        tell_draws(DUNLIN_V1_SECAGG_NOISE_GAUSSIAN, scales[i], n_values);
        if (scales[i] <= DUNLIN_SECAGG_SKELLAM_MOST) {
            tell_draws(DUNLIN_V1_SECAGG_NOISE_SKELLAM, scales[i], n_values);
        }
    }
}

int main(int argc, char **argv)
{
    const unsigned long n_values = argc > 1 ? strtoul(argv[1], NULL, 10) : 1000000;
    const unsigned long n_neighbours = argc > 2 ? strtoul(argv[2], NULL, 10) : 100;
    const unsigned long dropped = argc > 3 ? strtoul(argv[3], NULL, 10) : 30;
    bench all = {.n = (uint32_t)n_neighbours + 1};
    if (n_neighbours < 2 || n_neighbours > DUNLIN_SECAGG_NEIGHBOURS || n_values < 1 ||
        dropped > 45) {
        fprintf(stderr,
                "bench_secagg: VALUES from 1, NEIGHBOURS 2 to 254, DROPPED_PERCENT to 45\n");
        return 2;
    }
    all.plan = (dunlin__secagg_plan){.version = 1,
                                     .n_cohort = all.n,
                                     .n_neighbours = (uint32_t)n_neighbours,
                                     .threshold = (uint32_t)n_neighbours / 2 + 1,
                                     .least_devices = 2,
                                     .ring_bits = 32,
                                     .n_values = n_values,
                                     .clip = 1.0f,
                                     .value_limit = 1000000,
                                     .weight_limit = 1000,
                                     .check_consistency = true};
    all.plan.session.size = 32;
    all.devices = calloc(all.n, sizeof(all.devices[0]));
    all.answer = malloc(DUNLIN_WIRE_BODY_BYTES);
    all.plain = calloc(n_values + 1, sizeof(all.plain[0]));
    open_all(&all, (uint32_t)dropped);
    run_all(&all);
    const int result = tell(&all);
    tell_noise(n_values < 200000 ? n_values : 200000);
    for (uint32_t i = 0; i < all.n; i++) {
        dunlin__secagg_client_close(all.devices[i].client);
        free(all.devices[i].request);
    }
    dunlin__secagg_server_close(all.server);
    free(all.devices);
    free(all.answer);
    free(all.plain);
    return result;
}
