/*
 * limit.c - how long the studies of one run may take, and the share of each.
 */
#include "limit.h"

#include <common/progress.h>
#include <math.h>
#include <stddef.h>
#include <sys/resource.h>
#include <sys/time.h>

#define MS_PER_MINUTE 60e3

static double used_ms(int who)
{
    struct rusage usage;
    if (getrusage(who, &usage) != 0) {
        return 0.0;
    }
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1e3 +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e3;
}

double processor_ms(void)
{
    return used_ms(RUSAGE_SELF) + used_ms(RUSAGE_CHILDREN);
}

static double end_of(double now_ms, double minutes)
{
    return minutes > 0.0 ? now_ms + minutes * MS_PER_MINUTE : (double)INFINITY;
}

study_limit limit_begin(double wall_minutes, double processor_minutes)
{
    const double wall_ms = end_of(clock_ms(), wall_minutes);
    const double busy_ms = end_of(processor_ms(), processor_minutes);
    return (study_limit){.wall_end_ms = wall_ms,
                         .processor_end_ms = busy_ms,
                         .wall_share_ms = wall_ms,
                         .processor_share_ms = busy_ms};
}

bool limit_is_set(const study_limit *limit)
{
    return isfinite(limit->wall_end_ms) || isfinite(limit->processor_end_ms);
}

void limit_share(study_limit *limit, double share)
{
    const double wall_ms = clock_ms();
    const double busy_ms = processor_ms();
    limit->wall_share_ms = wall_ms + (limit->wall_end_ms - wall_ms) * share;
    limit->processor_share_ms = busy_ms + (limit->processor_end_ms - busy_ms) * share;
}

bool limit_allows(const study_limit *limit, bool is_first)
{
    const double wall_ms = clock_ms();
    const double busy_ms = processor_ms();
    if (wall_ms >= limit->wall_end_ms || busy_ms + limit->longest_ms > limit->processor_end_ms) {
        return false;
    }
    return is_first || (wall_ms < limit->wall_share_ms && busy_ms < limit->processor_share_ms);
}

void limit_end_part(study_limit *limit, double begin_ms)
{
    const double took_ms = processor_ms() - begin_ms;
    limit->longest_ms = took_ms > limit->longest_ms ? took_ms : limit->longest_ms;
}
