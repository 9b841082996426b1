/*
 * test_devices.c - files of devices: what is refused and how, where a device stands at a time, and
 * that a profile is what its page says.
 */
#include <criterion/criterion.h>

#include <simulate/devices.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char HEADER[] =
    "{\"dunlin_devices\": 1, \"period_s\": 100, \"requires\": [\"charging\"], \"least_battery\": "
    "30, \"classes\": [{\"name\": \"a\", \"time_factor\": 2}, {\"name\": \"b\", \"time_factor\": "
    "0.5}]}";

/* --- what is refused --- */

static void expect_header(const char *text, const char *wanted)
{
    sim_devices devices;
    char what[SIM_ERROR_BYTES] = "";
    const bool is_ok = sim_header_parse(text, strlen(text), &devices, what);
    cr_expect(is_ok == (wanted == NULL), "%s: %s", text, what);
    cr_expect(wanted == NULL || strstr(what, wanted) != NULL, "%s: %s", text, what);
}

Test(devices, a_wrong_header_is_refused_by_name)
{
    expect_header(HEADER, NULL);
    expect_header("{", "it is no JSON");
    expect_header("[1]", "no JSON object");
    expect_header("{\"class\": \"a\"}", "\"dunlin_devices\" is missing");
    expect_header("{\"dunlin_devices\": 2, \"classes\": []}", "\"dunlin_devices\" is 2");
    expect_header("{\"dunlin_devices\": 1, \"speed\": 2}", "the key \"speed\" is not known");
    expect_header("{\"dunlin_devices\": 1}", "\"classes\" has 0 entries");
    expect_header("{\"dunlin_devices\": 1, \"period_s\": 0, \"classes\": []}", "\"period_s\" is 0");
    expect_header("{\"dunlin_devices\": 1, \"requires\": [\"sun\"], \"classes\": []}", "\"sun\"");
    expect_header("{\"dunlin_devices\": 1, \"classes\": [{\"name\": \"a\", \"time_factor\": -1}]}",
                  "\"time_factor\" is -1");
    expect_header("{\"dunlin_devices\": 1, \"classes\": [{\"name\": \"a\", \"time_factor\": 1}, "
                  "{\"name\": \"a\", \"time_factor\": 1}]}",
                  "the class \"a\" is there twice");
}

/* What a class says of its radios goes before what is assumed. */
Test(devices, a_class_has_its_own_radios)
{
    static const char text[] =
        "{\"dunlin_devices\": 1, \"classes\": [{\"name\": \"a\", \"time_factor\": 1, \"wifi\": [1, "
        "2.5, 0]}]}";
    sim_devices devices;
    char what[SIM_ERROR_BYTES] = "";
    cr_assert(sim_header_parse(text, strlen(text), &devices, what), "%s", what);
    cr_expect_eq(devices.classes[0].wifi.up, 1.0);
    cr_expect_eq(devices.classes[0].wifi.down, 2.5);
    cr_expect_eq(devices.classes[0].wifi.base, 0.0);
    cr_expect_eq(devices.classes[0].cellular.base, 1288.04, "as it is assumed");
#define RADIO(rest)                                                                                \
    "{\"dunlin_devices\": 1, \"classes\": [{\"name\": \"a\", \"time_factor\": 1, "                 \
    "\"cellular\": " rest "}]}"
    expect_header(RADIO("[1, 2]"), "\"cellular\" is no list of 3");
    expect_header(RADIO("5"), "\"cellular\" is no list of 3");
    expect_header(RADIO("[1, 2, \"x\"]"), "entry 2 of \"cellular\"");
    expect_header(RADIO("[1, -2, 3]"), "entry 1 of \"cellular\"");
    expect_header(RADIO("[1e7, 2, 3]"), "entry 0 of \"cellular\"");
}

#define DEVICE(rest) "{\"class\": \"a\", \"memory\": 1000, \"down\": 1e6, \"up\": 1e5, " rest "}"

static void expect_device(const char *text, const char *wanted)
{
    sim_devices devices;
    sim_device device;
    char what[SIM_ERROR_BYTES] = "";
    cr_assert(sim_header_parse(HEADER, strlen(HEADER), &devices, what), "%s", what);
    const bool is_ok = sim_device_parse(text, strlen(text), &devices, &device, what);
    cr_expect(is_ok == (wanted == NULL), "%s: %s", text, what);
    cr_expect(wanted == NULL || strstr(what, wanted) != NULL, "%s: %s", text, what);
    free(device.trace);
}

Test(devices, a_wrong_device_is_refused_by_name)
{
    expect_device(DEVICE("\"trace\": [[0, \"ouci\"]]"), NULL);
    expect_device(DEVICE("\"latency_us\": -1, \"trace\": [[0, \"o\"]]"), "\"latency_us\" is -1");
    expect_device("{\"class\": \"a\", \"memory\": 1, \"down\": -5, \"up\": 1, \"trace\": []}",
                  "\"down\" is -5");
    expect_device("{\"class\": \"c\"}", "the class \"c\" is not in the header");
    expect_device("{\"class\": \"a\", \"down\": 1}", "\"memory\" is missing");
    expect_device(DEVICE("\"failures\": 1.5, \"trace\": [[0, \"o\"]]"), "\"failures\" is 1.5");
    expect_device(DEVICE("\"trace\": []"), "\"trace\" has 0 entries");
    expect_device(DEVICE("\"trace\": [[5, \"o\"]]"), "entry 0 of \"trace\" is at 5 s");
    expect_device(DEVICE("\"trace\": [[0, \"o\"], [50, \"\"], [40, \"o\"]]"),
                  "entry 2 of \"trace\" is at 40 s, which goes back in time");
    expect_device(DEVICE("\"trace\": [[0, \"o\"], [100, \"\"]]"), "the period has 100");
    expect_device(DEVICE("\"trace\": [[0, \"ox\"]]"), "the state 'x'");
    expect_device(DEVICE("\"trace\": [[0, \"o\", 101]]"), "battery");
    expect_device(DEVICE("\"trace\": [[0, \"o\", 50, 0]]"), "memory");
    expect_device(DEVICE("\"trace\": [[0, \"o\"], [5]]"), "entry 1 of \"trace\" is not");
    expect_device(DEVICE("\"trace\": [[0, \"o\"], [5, \"o\"], [5, \"\"]]"), "entry 2 of \"trace\"");
    expect_device("{\"class\": \"a\", \"memory\": -5}", "\"memory\" is -5");
    expect_device("{\"class\": \"a\", \"memory\": 1.5}", "\"memory\" is no whole number");
    expect_device("{\"class\": \"a\", \"memory\": 1, \"down\": 0}", "\"down\" is 0");
    expect_device("{\"class\": \"a\", \"memory\": 1, \"down\": NaN}", "it is no JSON");
    expect_device("{\"class\": \"a\", \"class\": \"b\"}", "duplicate");
    expect_device(DEVICE("\"wheels\": 4, \"trace\": [[0, \"o\"]]"), "\"wheels\"");
}

/* --- where a device stands --- */

Test(devices, a_trace_repeats_and_transfers_wait_for_the_network)
{
    sim_devices devices;
    sim_device device;
    char what[SIM_ERROR_BYTES] = "";
    const char text[] = DEVICE("\"trace\": [[0, \"o\", 50], [20, \"oc\", 20, 500], [40, \"oc\", "
                               "60], [70, \"\", 60, 2000]]");
    cr_assert(sim_header_parse(HEADER, strlen(HEADER), &devices, what), "%s", what);
    cr_assert(sim_device_parse(text, strlen(text), &devices, &device, what), "%s", what);
    const int64_t s = SIM_US_PER_S;
    cr_expect_eq(sim_moment_at(&devices, &device, 0)->memory_bytes, 1000);
    cr_expect_eq(sim_moment_at(&devices, &device, 120 * s)->memory_bytes, 500, "the second day");
    cr_expect_eq(sim_moment_at(&devices, &device, 69 * s)->memory_bytes, 500, "as before");
    cr_expect_eq(sim_next_change_us(&devices, &device, 0), 20 * s);
    cr_expect_eq(sim_next_change_us(&devices, &device, 170 * s), 200 * s);
    cr_expect(!sim_is_ready(&devices, &device, 10 * s), "it is not charging");
    cr_expect(!sim_is_ready(&devices, &device, 30 * s), "the battery has 20 of 30");
    cr_expect(sim_is_ready(&devices, &device, 40 * s));
    cr_expect_eq(sim_ready_from_us(&devices, &device, 71 * s), 140 * s);
    cr_expect_eq(sim_online_from_us(&devices, &device, 71 * s), 100 * s);
    cr_expect_eq(sim_online_end_us(&devices, &device, 60 * s, 5 * s), 65 * s);
    cr_expect_eq(sim_online_end_us(&devices, &device, 65 * s, 7 * s), 102 * s, "30 s without");
    cr_expect_eq(sim_online_end_us(&devices, &device, 0, 141 * s), 201 * s);
    cr_expect_eq(sim_least_memory(&device), 500);
    cr_expect_eq(sim_most_memory(&device), 2000);
    device.n_moments = 1;
    cr_expect_eq(sim_ready_from_us(&devices, &device, 5), -1, "it never charges");
    free(device.trace);
}

/* --- files --- */

static void make_path(char out[64])
{
    (void)snprintf(out, 64, "/tmp/dunlin-devices-XXXXXX");
    const int fd = mkstemp(out);
    cr_assert(fd >= 0);
    (void)close(fd);
}

static void expect_file(const char *text, size_t n, const char *wanted)
{
    char path[64];
    char error[SIM_ERROR_BYTES] = "";
    sim_devices devices;
    make_path(path);
    FILE *file = fopen(path, "w");
    cr_assert(file != NULL && fwrite(text, 1, n, file) == n && fclose(file) == 0);
    const bool is_ok = sim_devices_read(path, 0, &devices, error);
    cr_expect(is_ok == (wanted == NULL), "%s", error);
    cr_expect(wanted == NULL || strstr(error, wanted) != NULL, "%s", error);
    cr_expect(strchr(error, '\n') == NULL, "%s", error);
    sim_devices_free(&devices);
    (void)unlink(path);
}

Test(devices, a_wrong_file_is_refused_with_its_line)
{
    char text[SIM_LINE_BYTES + 1000];
    sim_devices devices;
    char error[SIM_ERROR_BYTES] = "";
    cr_expect(!sim_devices_read("/nowhere/devices", 0, &devices, error));
    cr_expect_not_null(strstr(error, "--devices /nowhere/devices: No such file"), "%s", error);
    sim_devices_free(&devices);
    expect_file("", 0, "line 1: the file is empty");
    int n = snprintf(text, sizeof text, "%s\n", HEADER);
    expect_file(text, (size_t)n, "there is no device in the file");
    n = snprintf(text, sizeof text, "%s\n%s\n\n%s", HEADER, DEVICE("\"trace\": [[0, \"o\"]]"),
                 DEVICE("\"trace\": [[0, \"q\"]]"));
    expect_file(text, (size_t)n, "line 4: entry 0");
    /* A byte order mark, and lines of another system's. */
    n = snprintf(text, sizeof text, "\xef\xbb\xbf%s\r\n%s\r\n\r\n%s\r\n", HEADER,
                 DEVICE("\"trace\": [[0, \"o\"]]"), DEVICE("\"trace\": [[0, \"oc\"]]"));
    expect_file(text, (size_t)n, NULL);
    text[0] = '\n';
    expect_file(text, (size_t)n, "line 1: it is no JSON");
    n = snprintf(text, sizeof text, "%s\n\xef\xbb\xbf%s\n", HEADER,
                 DEVICE("\"trace\": [[0, \"o\"]]"));
    expect_file(text, (size_t)n, "line 2: it is no JSON");
    n = snprintf(text, sizeof text, "%s\n%s", HEADER, DEVICE("\"trace\": [[0, \"o\"]]"));
    expect_file(text, (size_t)n, NULL);
    static const char ODD[] = "{\"class\": \"a\\nb\\u001b[31m\"}";
    const int n_odd = snprintf(text, sizeof text, "%s\n%s", HEADER, ODD);
    expect_file(text, (size_t)n_odd, "line 2: the class \"a?b?[31m\" is not in the header");
    (void)snprintf(text, sizeof text, "%s\n%s", HEADER, DEVICE("\"trace\": [[0, \"o\"]]"));
    (void)memset(text + n, ' ', sizeof text - (size_t)n);
    expect_file(text, sizeof text, "line 2: it has more than 65536 bytes");
}

static void read_profile(const char *path, int64_t n, const char *profile, uint64_t seed,
                         int64_t most, sim_devices *out)
{
    char error[SIM_ERROR_BYTES] = "";
    cr_assert(sim_devices_write(path, n, profile, seed, error), "%s", error);
    cr_assert(sim_devices_read(path, most, out, error), "%s", error);
}

Test(devices, a_profile_is_what_its_page_says)
{
    char path[64];
    sim_devices devices;
    make_path(path);
    read_profile(path, 2000, "phones2019", 7, 0, &devices);
    cr_assert_eq(devices.n, 2000);
    cr_expect_eq(devices.n_classes, 5);
    int64_t of_class[SIM_CLASSES] = {0};
    int64_t ready_at[24] = {0};
    for (int64_t i = 0; i < devices.n; i++) {
        const sim_device *one = &devices.list[i];
        of_class[one->class_index]++;
        cr_expect(sim_most_memory(one) >= (64U << 20) && sim_most_memory(one) <= (768U << 20));
        for (int64_t h = 0; h < 24; h++) {
            ready_at[h] += sim_is_ready(&devices, one, h * 3600 * SIM_US_PER_S) ? 1 : 0;
        }
    }
    for (int32_t i = 0; i < 5; i++) {
        cr_expect(of_class[i] > 330 && of_class[i] < 470, "class %d: %lld", (int)i,
                  (long long)of_class[i]);
    }
    cr_expect(devices.classes[0].time_factor > 10 * devices.classes[4].time_factor);
    cr_expect(ready_at[3] > 1000 && ready_at[12] < 200, "%lld at 3, %lld at 12",
              (long long)ready_at[3], (long long)ready_at[12]);
    sim_devices_free(&devices);
    read_profile(path, 500, "mixed", 7, 100, &devices);
    cr_expect_eq(devices.n, 100, "so many are kept");
    cr_expect_eq(devices.n_file, 500, "and all are read");
    cr_expect_eq(devices.n_classes, 11);
    sim_devices_free(&devices);
    (void)unlink(path);
}

Test(devices, the_same_seed_makes_the_same_file)
{
    char paths[3][64];
    char *texts[3];
    char error[SIM_ERROR_BYTES] = "";
    for (int i = 0; i < 3; i++) {
        make_path(paths[i]);
        cr_assert(sim_devices_write(paths[i], 20, "mixed", i < 2 ? 3 : 4, error), "%s", error);
        texts[i] = calloc(1, 1 << 20);
        FILE *file = fopen(paths[i], "r");
        cr_assert(file != NULL && fread(texts[i], 1, (1 << 20) - 1, file) > 1000);
        (void)fclose(file);
        (void)unlink(paths[i]);
    }
    cr_expect_str_eq(texts[0], texts[1]);
    cr_expect_str_neq(texts[0], texts[2]);
    for (int i = 0; i < 3; i++) {
        free(texts[i]);
    }
    cr_expect(!sim_devices_write("/nowhere/devices", 1, "mixed", 1, error));
    cr_expect_not_null(strstr(error, "/nowhere/devices cannot be written"), "%s", error);
}

Test(devices, what_is_to_be_made_is_read_strictly)
{
    static const char *const WRONG[] = {
        "",          "10",        ":mixed",   "0:mixed", "1000001:mixed",
        "10x:mixed", "10:phones", "-1:mixed", "10:"};
    int64_t n = 0;
    char profile[SIM_NAME_BYTES];
    char error[SIM_ERROR_BYTES];
    cr_expect(sim_make_parse("1000000:phones2025", &n, profile, error));
    cr_expect_eq(n, 1000000);
    cr_expect_str_eq(profile, "phones2025");
    for (size_t i = 0; i < sizeof WRONG / sizeof WRONG[0]; i++) {
        cr_expect(!sim_make_parse(WRONG[i], &n, profile, error), "%s", WRONG[i]);
        cr_expect_not_null(strstr(error, "phones2019"), "%s", error);
    }
}
