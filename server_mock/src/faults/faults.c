/*
 * faults.c - reads fault scripts and decides which requests they hit.
 *
 * Invariant: whether a rule hits the n-th request of a call is a function of (seed, rule, n); time
 * and arrival of other calls play no part. Of the rules that hit, the first one counts.
 */
#include "faults.h"

#include <mem/support.h>

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define SCRIPT_BYTES (64u * 1024u)
#define MAX_RULES 256u
#define MAX_WORDS 6
#define ANY_CALL DUNLIN_N_CALLS

/* When a rule hits: the first to the last-th request of its call, of these every n-th, of these
 * some by chance. */
typedef struct fault_rule {
    dunlin__call call;
    uint64_t first;
    uint64_t last;
    uint64_t every;
    double probability;
    dunlin__script_fault fault;
} fault_rule;

struct dunlin__faults {
    dunlin_alloc alloc;
    uint64_t seed;
    fault_rule rules[MAX_RULES];
    size_t n_rules;
    atomic_uint_fast64_t n_requests[DUNLIN_N_CALLS];
};

/* What a fault takes. */
typedef enum parameter { TAKES_NONE, TAKES_BYTE, TAKES_NUMBER, TAKES_HTTP, TAKES_CODE } parameter;

/* Which calls it makes sense for. */
typedef enum reach { ON_ALL, ON_KEYED, ON_ACCEPT } reach;

static const struct fault_form {
    const char *name;
    parameter takes;
    reach where;
    int64_t least;
    int64_t most;
    int64_t standard; /* without a parameter; -1: it must be given */
} forms[DUNLIN_N_FAULTS] = {
    [DUNLIN_FAULT_DROP_REQUEST] = {"drop-request", TAKES_BYTE, ON_ALL, 0, INT32_MAX, -1},
    [DUNLIN_FAULT_DROP_REPLY] = {"drop-reply", TAKES_BYTE, ON_ALL, 0, INT32_MAX, -1},
    [DUNLIN_FAULT_LOSE] = {"lose", TAKES_NONE, ON_ALL, 0, 0, 0},
    [DUNLIN_FAULT_STATUS] = {"status", TAKES_HTTP, ON_ALL, 400, 599, -1},
    [DUNLIN_FAULT_REFUSE] = {"refuse", TAKES_CODE, ON_ALL, 0, 0, -1},
    [DUNLIN_FAULT_SLOW] = {"slow", TAKES_NUMBER, ON_ALL, 1, INT32_MAX, -1},
    [DUNLIN_FAULT_STALL] = {"stall", TAKES_NUMBER, ON_ALL, 1, 3600000, -1},
    [DUNLIN_FAULT_DUPLICATE] = {"duplicate", TAKES_NONE, ON_ALL, 0, 0, 0},
    [DUNLIN_FAULT_REORDER] = {"reorder", TAKES_NUMBER, ON_ALL, 1, 3600000, 1000},
    [DUNLIN_FAULT_REPLAY] = {"replay", TAKES_NONE, ON_KEYED, 0, 0, 0},
    [DUNLIN_FAULT_WRONG_DIGEST] = {"wrong-digest", TAKES_BYTE, ON_ALL, 0, INT32_MAX, 0},
    [DUNLIN_FAULT_BAD_SIGNATURE] = {"bad-signature", TAKES_NONE, ON_ACCEPT, 0, 0, 0},
    [DUNLIN_FAULT_STALE_ROUND] = {"stale-round", TAKES_NONE, ON_ACCEPT, 0, 0, 0},
    [DUNLIN_FAULT_CLOCK_SKEW] = {"clock-skew", TAKES_NUMBER, ON_KEYED, -INT64_C(400000000000),
                                 INT64_C(400000000000), -1},
    [DUNLIN_FAULT_OVERSIZED] = {"oversized", TAKES_NUMBER, ON_ALL, 1, INT32_MAX,
                                2 * DUNLIN_WIRE_CHUNK_MAX_BYTES},
    [DUNLIN_FAULT_PORTAL] = {"portal", TAKES_NONE, ON_ALL, 0, 0, 0},
    [DUNLIN_FAULT_REDIRECT] = {"redirect", TAKES_NONE, ON_ALL, 0, 0, 0},
    [DUNLIN_FAULT_ENCODING] = {"encoding", TAKES_NONE, ON_ALL, 0, 0, 0},
};

const char *dunlin__fault_name(dunlin__fault_kind kind)
{
    return (unsigned)kind < DUNLIN_N_FAULTS && forms[kind].name != NULL ? forms[kind].name : "none";
}

/* ---- reading ---- */

/* A place in the script, for complaints. */
typedef struct script_line {
    const char *path;
    unsigned number;
    char *words[MAX_WORDS];
    int n_words;
    dunlin_error *error;
} script_line;

static dunlin_status complain(const script_line *line, const char *word, const char *wants)
{
    return dunlin__fail(line->error, DUNLIN_ARGUMENT, "faults", 0, "%.120s:%u: %.40s: %s",
                        line->path, line->number, word, wants);
}

static bool read_number(const char *text, int64_t least, int64_t most, int64_t *out_value)
{
    char *end = NULL;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    bool is_number = (text[0] >= '0' && text[0] <= '9') || (text[0] == '-' && text[1] != 0);
    if (errno != 0 || !is_number || *end != 0 || value < least || value > most) {
        return false;
    }
    *out_value = value;
    return true;
}

/* Names of calls are those of the protocol in lower case, with - for _. */
static bool is_name_of(const char *text, const char *name)
{
    for (; *text != 0 && *name != 0; text++, name++) {
        int wanted = *name == '_' ? '-' : tolower((unsigned char)*name);
        if (*text != wanted) {
            return false;
        }
    }
    return *text == *name;
}

static bool find_call(const char *text, dunlin__call *out_call)
{
    *out_call = ANY_CALL;
    if (strcmp(text, "any") == 0) {
        return true;
    }
    for (int i = 0; i < DUNLIN_N_CALLS; i++) {
        if (is_name_of(text, dunlin__call_describe((dunlin__call)i)->name)) {
            *out_call = (dunlin__call)i;
            return true;
        }
    }
    return false;
}

/* "all", "3", "2-5", "every:3", "p:0.05". */
static bool read_when(const char *text, fault_rule *rule)
{
    int64_t value = 0;
    rule->first = 1;
    rule->last = UINT64_MAX;
    rule->every = 1;
    rule->probability = 1;
    if (strcmp(text, "all") == 0) {
        return true;
    }
    if (strncmp(text, "every:", 6) == 0) {
        bool is_good = read_number(text + 6, 1, INT32_MAX, &value);
        rule->every = (uint64_t)value;
        return is_good;
    }
    if (strncmp(text, "p:", 2) == 0) {
        char *end = NULL;
        rule->probability = strtod(text + 2, &end);
        return text[2] >= '0' && text[2] <= '9' && *end == 0 && rule->probability <= 1;
    }
    char first[16] = "";
    size_t n_chars = strcspn(text, "-");
    if (n_chars >= sizeof first) {
        return false;
    }
    memcpy(first, text, n_chars);
    if (!read_number(first, 1, INT32_MAX, &value)) {
        return false;
    }
    rule->first = (uint64_t)value;
    rule->last = rule->first;
    if (text[n_chars] == '-') {
        bool is_good = read_number(text + n_chars + 1, value, INT32_MAX, &value);
        rule->last = (uint64_t)value;
        return is_good;
    }
    return true;
}

static bool find_code(const char *text, int64_t *out_code)
{
    for (int i = 1; i < 64; i++) {
        const dunlin__status_meaning *meaning = dunlin__status_describe((dunlin_v1_status_code_t)i);
        if (meaning != NULL && is_name_of(text, meaning->name)) {
            *out_code = i;
            return true;
        }
    }
    return false;
}

static dunlin_status read_parameter(const script_line *line, dunlin__script_fault *fault)
{
    const struct fault_form *form = &forms[fault->kind];
    const char *text = line->n_words > 3 ? line->words[3] : NULL;
    int most_words = form->takes == TAKES_NONE ? 3 : (form->takes == TAKES_HTTP ? 5 : 4);
    fault->amount = form->standard;
    fault->retry_ms = -1;
    if (line->n_words > most_words) {
        return complain(line, line->words[most_words], "nothing is expected here");
    }
    if (text == NULL) {
        return form->standard >= 0 ? DUNLIN_OK : complain(line, form->name, "wants a value");
    }
    if (form->takes == TAKES_BYTE && strcmp(text, "random") == 0) {
        fault->is_random = true;
        return DUNLIN_OK;
    }
    if (form->takes == TAKES_CODE) {
        return find_code(text, &fault->amount)
                   ? DUNLIN_OK
                   : complain(line, text, "is no status of the protocol (proto/common.proto)");
    }
    if (!read_number(text, form->least, form->most, &fault->amount)) {
        return dunlin__fail(line->error, DUNLIN_ARGUMENT, "faults", 0,
                            "%.120s:%u: %.40s: %s takes a number from %lld to %lld", line->path,
                            line->number, text, form->name, (long long)form->least,
                            (long long)form->most);
    }
    if (line->n_words == 5 && !read_number(line->words[4], 0, 86400000, &fault->retry_ms)) {
        return complain(line, line->words[4], "the wait is 0 to 86400000 ms");
    }
    return DUNLIN_OK;
}

static dunlin_status read_fault(const script_line *line, fault_rule *rule)
{
    const char *name = line->words[2];
    dunlin__fault_kind kind = DUNLIN_FAULT_NONE;
    for (int i = 1; i < DUNLIN_N_FAULTS; i++) {
        kind = strcmp(name, forms[i].name) == 0 ? (dunlin__fault_kind)i : kind;
    }
    if (kind == DUNLIN_FAULT_NONE) {
        return complain(line, name, "is no fault (server_mock/FAULTS.md has the table)");
    }
    rule->fault.kind = kind;
    bool is_keyed = rule->call != ANY_CALL && dunlin__call_describe(rule->call)->is_keyed;
    if (forms[kind].where == ON_ACCEPT && rule->call != DUNLIN_CALL_ACCEPT) {
        return complain(line, name, "is for accept alone");
    }
    if (forms[kind].where == ON_KEYED && !is_keyed) {
        return complain(line, name, "is for the POST calls, each by its name");
    }
    return read_parameter(line, &rule->fault);
}

static dunlin_status read_line(dunlin__faults *faults, const script_line *line)
{
    int64_t value = 0;
    if (strcmp(line->words[0], "seed") == 0) {
        if (line->n_words != 2 || !read_number(line->words[1], 0, INT64_MAX, &value)) {
            return complain(line, "seed", "wants one number from 0");
        }
        faults->seed = (uint64_t)value;
        return DUNLIN_OK;
    }
    if (line->n_words < 3) {
        return complain(line, line->words[0], "a rule is CALL WHEN FAULT [VALUE]");
    }
    if (faults->n_rules == MAX_RULES) {
        return dunlin__fail(line->error, DUNLIN_LIMIT, "faults", 0, "%.120s:%u: more than %u rules",
                            line->path, line->number, MAX_RULES);
    }
    fault_rule *rule = &faults->rules[faults->n_rules];
    if (!find_call(line->words[0], &rule->call)) {
        return complain(line, line->words[0], "is no call (server_mock/FAULTS.md has them)");
    }
    if (!read_when(line->words[1], rule)) {
        return complain(line, line->words[1], "is not all, N, FIRST-LAST, every:N or p:0.05");
    }
    DUNLIN_TRY(read_fault(line, rule));
    faults->n_rules++;
    return DUNLIN_OK;
}

static dunlin_status read_script(dunlin__faults *faults, const char *path, char *text,
                                 dunlin_error *error)
{
    script_line line = {.path = path, .error = error};
    char *rest = text;
    while (rest != NULL) {
        char *this_line = rest;
        char *end = strchr(rest, '\n');
        rest = end != NULL ? end + 1 : NULL;
        this_line[strcspn(this_line, "\n#")] = 0;
        line.number++;
        line.n_words = 0;
        char *state = NULL;
        char *word = strtok_r(this_line, " \t\r", &state);
        for (; word != NULL && line.n_words < MAX_WORDS; word = strtok_r(NULL, " \t\r", &state)) {
            line.words[line.n_words++] = word;
        }
        if (line.n_words > 0) {
            DUNLIN_TRY(read_line(faults, &line));
        }
    }
    return DUNLIN_OK;
}

dunlin_status dunlin__faults_read(const char *path, const dunlin_alloc *alloc,
                                  dunlin__faults **out_faults, dunlin_error *error)
{
    uint8_t *text = NULL;
    size_t n_bytes = 0;
    *out_faults = NULL;
    DUNLIN_TRY(dunlin__server_file_read(alloc, path, SCRIPT_BYTES, &text, &n_bytes, error));
    dunlin__faults *faults = dunlin__alloc_zeroed(alloc, 1, sizeof *faults);
    dunlin_status status = DUNLIN_OK;
    if (faults == NULL) {
        status = dunlin__fail(error, DUNLIN_MEMORY, "faults", 0, "%zu bytes", sizeof *faults);
    } else {
        faults->alloc = *alloc;
        status = read_script(faults, path, (char *)text, error);
    }
    dunlin__free_array(alloc, text, n_bytes + 1, 1);
    if (status != DUNLIN_OK) {
        dunlin__faults_free(faults);
        return status;
    }
    *out_faults = faults;
    return DUNLIN_OK;
}

void dunlin__faults_free(dunlin__faults *faults)
{
    if (faults != NULL) {
        dunlin_alloc alloc = faults->alloc;
        dunlin__free_array(&alloc, faults, 1, sizeof *faults);
    }
}

/* ---- deciding ---- */

/* splitmix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, OOPSLA 2014). */
static uint64_t mix(uint64_t z)
{
    z += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

dunlin__script_fault dunlin__faults_next(dunlin__faults *faults, dunlin__call call)
{
    uint64_t n = atomic_fetch_add(&faults->n_requests[call], 1) + 1;
    for (size_t i = 0; i < faults->n_rules; i++) {
        const fault_rule *rule = &faults->rules[i];
        bool is_near = (rule->call == ANY_CALL || rule->call == call) && n >= rule->first &&
                       n <= rule->last && n % rule->every == 0;
        if (!is_near) {
            continue;
        }
        uint64_t draw = mix(mix(mix(faults->seed ^ (i << 8)) ^ (uint64_t)call) ^ n);
        if ((double)(draw >> 11) * 0x1p-53 < rule->probability) {
            dunlin__script_fault fault = rule->fault;
            fault.draw = mix(draw);
            return fault;
        }
    }
    return (dunlin__script_fault){.kind = DUNLIN_FAULT_NONE};
}

uint64_t dunlin__fault_byte(const dunlin__script_fault *fault, uint64_t n_bytes)
{
    if (!fault->is_random) {
        return (uint64_t)fault->amount;
    }
    return n_bytes > 0 ? fault->draw % n_bytes : 0;
}
