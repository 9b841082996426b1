/*
 * driver.c - runs a fuzz target without libFuzzer: each seed of a folder as it is, every prefix of
 * the short ones, and a fixed number of deterministic mutations of each. DUNLIN_CASES scales them.
 * A target that is slow is given a smaller number, of prefixes too.
 */
#include <dirent.h>
#include <errno.h>
#include <random.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MAX_SEEDS 1024
#define MAX_SEED_BYTES (4u << 20)
#define MUTATIONS 2000
#define PREFIX_BYTES 512

/* What is being tried, printed when the target crashes. */
static const char *current_name = "";
static uint64_t current_case;

typedef struct seed {
    char *name;
    uint8_t *bytes;
    size_t n_bytes;
} seed;

static void try_input(const uint8_t *bytes, size_t n_bytes)
{
    /* A block of its own size, so that reading past the end is seen. */
    uint8_t *copy = malloc(n_bytes > 0 ? n_bytes : 1);
    if (copy == NULL) {
        (void)fprintf(stderr, "no memory for %zu bytes\n", n_bytes);
        exit(1);
    }
    memcpy(copy, bytes, n_bytes);
    (void)LLVMFuzzerTestOneInput(copy, n_bytes);
    free(copy);
}

static size_t mutate_once(uint8_t *bytes, size_t n_bytes, size_t capacity, uint64_t *state)
{
    static const uint64_t NUMBERS[] = {0,          1,          0x7F,       0x80,
                                       0xFF,       0x7FFF,     0xFFFF,     0x7FFFFFFF,
                                       0x80000000, 0xFFFFFFFF, UINT64_MAX, (uint64_t)INT64_MAX};
    if (n_bytes == 0) {
        bytes[0] = (uint8_t)test_random_u64(state);
        return 1;
    }
    size_t at = (size_t)test_random_below(state, n_bytes);
    size_t n_left = n_bytes - at;
    switch (test_random_below(state, 6)) {
    case 0:
        bytes[at] ^= (uint8_t)(1U << test_random_below(state, 8));
        return n_bytes;
    case 1:
        bytes[at] = (uint8_t)test_random_u64(state);
        return n_bytes;
    case 2: {
        uint64_t number = NUMBERS[test_random_below(state, sizeof NUMBERS / sizeof NUMBERS[0])];
        size_t n = (size_t)1 << test_random_below(state, 4);
        memcpy(bytes + at, &number, n < n_left ? n : n_left);
        return n_bytes;
    }
    case 3:
        return at; /* cut */
    case 4: {
        size_t n = (size_t)test_random_below(state, n_left) + 1;
        memmove(bytes + at, bytes + at + n, n_left - n);
        return n_bytes - n;
    }
    default: {
        size_t n = (size_t)test_random_below(state, n_left) + 1;
        n = n < capacity - n_bytes ? n : capacity - n_bytes;
        memmove(bytes + at + n, bytes + at, n_left); /* a part twice */
        return n_bytes + n;
    }
    }
}

static void try_seed(const seed *from, int n_each, uint8_t *work, size_t capacity)
{
    uint64_t name_hash = 1469598103934665603ULL;
    for (const char *c = from->name; *c != '\0'; c++) {
        name_hash = (name_hash ^ (uint64_t)(unsigned char)*c) * 1099511628211ULL;
    }
    current_name = from->name;
    current_case = 0;
    try_input(from->bytes, from->n_bytes);
    size_t n_between = n_each < MUTATIONS ? from->n_bytes / (size_t)n_each + 1 : 1;
    for (size_t n = 0; n < from->n_bytes && n < PREFIX_BYTES; n += n_between) {
        try_input(from->bytes, n);
    }
    int n_mutations = test_cases(from->n_bytes > (1U << 16) ? n_each / 10 : n_each);
    for (int i = 1; i <= n_mutations; i++) {
        uint64_t state = test_seed(0) ^ name_hash ^ ((uint64_t)i << 32);
        current_case = (uint64_t)i;
        size_t n_bytes = from->n_bytes;
        memcpy(work, from->bytes, n_bytes);
        uint64_t n_changes = 1 + test_random_below(&state, 4);
        for (uint64_t k = 0; k < n_changes; k++) {
            n_bytes = mutate_once(work, n_bytes, capacity, &state);
        }
        try_input(work, n_bytes);
    }
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const seed *)a)->name, ((const seed *)b)->name);
}

static seed read_seed(const char *folder, const char *name)
{
    char path[4096];
    seed found = {.name = strdup(name), .bytes = malloc(MAX_SEED_BYTES)};
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "rb");
    if (file == NULL || found.bytes == NULL || found.name == NULL) {
        (void)fprintf(stderr, "%s: %s\n", path, strerror(errno));
        exit(1);
    }
    found.n_bytes = fread(found.bytes, 1, MAX_SEED_BYTES, file);
    (void)fclose(file);
    return found;
}

static size_t read_seeds(const char *folder, seed *out_seeds)
{
    size_t n_seeds = 0;
    DIR *list = opendir(folder);
    if (list == NULL) {
        (void)fprintf(stderr, "%s: %s\n", folder, strerror(errno));
        exit(1);
    }
    for (const struct dirent *entry = readdir(list); entry != NULL && n_seeds < MAX_SEEDS;
         entry = readdir(list)) {
        if (entry->d_name[0] != '.') {
            out_seeds[n_seeds++] = read_seed(folder, entry->d_name);
        }
    }
    (void)closedir(list);
    qsort(out_seeds, n_seeds, sizeof out_seeds[0], by_name);
    return n_seeds;
}

#if defined(__SANITIZE_ADDRESS__)
void __asan_on_error(void);
void __asan_on_error(void)
{
    (void)fprintf(stderr, "while trying seed %s, mutation %llu\n", current_name,
                  (unsigned long long)current_case);
}
#endif

int main(int argc, char **argv)
{
    static seed seeds[MAX_SEEDS];
    static uint8_t work[2 * MAX_SEED_BYTES];
    int n_each = argc == 3 ? atoi(argv[2]) : MUTATIONS;
    if (argc < 2 || argc > 3 || n_each < 1) {
        (void)fprintf(stderr, "usage: %s FOLDER-OF-SEEDS [MUTATIONS-OF-EACH]\n", argv[0]);
        return 2;
    }
    size_t n_seeds = read_seeds(argv[1], seeds);
    if (n_seeds == 0) {
        (void)fprintf(stderr, "%s holds no seeds\n", argv[1]);
        return 1;
    }
    for (size_t i = 0; i < n_seeds; i++) {
        try_seed(&seeds[i], n_each, work, sizeof work);
        free(seeds[i].name);
        free(seeds[i].bytes);
    }
    (void)printf("%zu seeds, each with its mutations: no crash\n", n_seeds);
    return 0;
}
