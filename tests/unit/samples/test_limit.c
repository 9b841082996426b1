/*
 * test_limit.c - how long the studies of one run may take: no times are measured here, only ends
 * that lie far ahead or in the past.
 */
#include <criterion/criterion.h>

#include <common/progress.h>
#include <math.h>
#include <study/limit.h>

#define HOUR_MS 3600e3

Test(limit, there_is_none_without_minutes)
{
    study_limit limit = limit_begin(0.0, 0.0);
    cr_expect(!limit_is_set(&limit));
    limit_share(&limit, 0.01);
    limit_end_part(&limit, processor_ms() - HOUR_MS);
    cr_expect(limit_allows(&limit, false));
}

Test(limit, either_clock_is_a_limit)
{
    study_limit wall = limit_begin(60.0, 0.0);
    study_limit busy = limit_begin(0.0, 60.0);
    cr_expect(limit_is_set(&wall) && limit_is_set(&busy));
    cr_expect(limit_allows(&wall, false) && limit_allows(&busy, false));
    wall.wall_end_ms = clock_ms() - 1.0;
    busy.processor_end_ms = processor_ms() - 1.0;
    cr_expect(!limit_allows(&wall, true),
              "after the end not even the first part of a study begins");
    cr_expect(!limit_allows(&busy, true));
}

/* Ten studies of the same weight: each may take a tenth of what is left, and one that takes none
 * leaves its tenth to the others. */
Test(limit, shares_divide_what_is_left)
{
    study_limit limit = limit_begin(60.0, 120.0);
    limit_share(&limit, 0.1);
    cr_expect(limit.wall_share_ms < clock_ms() + 0.11 * HOUR_MS);
    cr_expect(limit.wall_share_ms > clock_ms() + 0.09 * HOUR_MS);
    cr_expect(limit.processor_share_ms < processor_ms() + 0.22 * HOUR_MS);
    limit_share(&limit, 1.0 / 9.0);
    cr_expect(limit.wall_share_ms > clock_ms() + 0.1 * HOUR_MS);
    limit_share(&limit, 1.0);
    cr_expect(fabs(limit.wall_share_ms - limit.wall_end_ms) < 1.0);
}

Test(limit, the_first_part_of_a_study_begins_whatever_its_share)
{
    study_limit limit = limit_begin(60.0, 60.0);
    limit.wall_share_ms = clock_ms() - 1.0;
    cr_expect(limit_allows(&limit, true));
    cr_expect(!limit_allows(&limit, false));
    limit_share(&limit, 0.5);
    limit.processor_share_ms = processor_ms() - 1.0;
    cr_expect(limit_allows(&limit, true));
    cr_expect(!limit_allows(&limit, false));
}

/* The longest part so far tells what the next one may take. */
Test(limit, no_part_begins_that_would_end_past_the_processors_limit)
{
    study_limit limit = limit_begin(0.0, 60.0);
    limit_end_part(&limit, processor_ms() - 0.5 * HOUR_MS);
    cr_expect(limit_allows(&limit, false));
    limit_end_part(&limit, processor_ms() - 1.5 * HOUR_MS);
    limit_end_part(&limit, processor_ms());
    cr_expect(!limit_allows(&limit, true));
}
