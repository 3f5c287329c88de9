/* services/policy: delays that double, windows, what is a success. */
#include "check.h"
#include "services/policy.h"

#define MS 1000000u

static struct service_config base_config(void)
{
    return (struct service_config){.restart = RESTART_ALWAYS,
                                   .restart_delay_ms = 100,
                                   .restart_backoff_ms = 1000,
                                   .restart_max = 0,
                                   .restart_window_ms = 10000};
}

static uint64_t delay(struct policy *p, const struct service_config *c, uint64_t ran_ms,
                      uint64_t now_ms)
{
    struct policy_answer a =
        policy_decide(p, c, false, (now_ms - ran_ms) * MS + 1, now_ms * MS + 1);
    return a.word == POLICY_AGAIN ? a.delay_ms : UINT64_MAX;
}

static void delays_double_up_to_the_cap(void)
{
    struct service_config c = base_config();
    struct policy p = {0};
    uint64_t want[] = {100, 200, 400, 800, 1000, 1000};
    for (size_t i = 0; i < sizeof want / sizeof want[0]; i++)
        CHECK(delay(&p, &c, 1, 5000 + i * 2000) == want[i]);
    CHECK(delay(&p, &c, 999, 30000) == 1000);
    CHECK(delay(&p, &c, 1000, 40000) == 100); /* a run as long as the cap starts it over */
    CHECK(delay(&p, &c, 1, 41000) == 200);
    policy_reset(&p);
    CHECK(delay(&p, &c, 1, 42000) == 100 && p.restarts_all == 1);
}

static void odd_delays(void)
{
    struct service_config c = base_config();
    struct policy p = {0};
    c.restart_delay_ms = 300;
    CHECK(delay(&p, &c, 1, 1000) == 300);
    CHECK(delay(&p, &c, 1, 2000) == 600);
    CHECK(delay(&p, &c, 1, 3000) == 1000); /* not 1200 */
    p = (struct policy){0};
    c.restart_delay_ms = c.restart_backoff_ms = 0;
    CHECK(delay(&p, &c, 0, 1000) == 0 && p.failures == 1);
    CHECK(delay(&p, &c, 0, 1000) == 100); /* no delay is no storm */
    c.restart_backoff_ms = 450;
    CHECK(delay(&p, &c, 1, 1000) == 400);
    CHECK(delay(&p, &c, 1, 1000) == 450);
    p = (struct policy){.failures = 4000000000u};
    c.restart_backoff_ms = c.restart_delay_ms = 86400000;
    CHECK(delay(&p, &c, 1, 1000) == 86400000);
}

static void too_many_in_a_window(void)
{
    struct service_config c = base_config();
    struct policy p = {0};
    c.restart_max = 3;
    for (unsigned i = 0; i < 3; i++)
        delay(&p, &c, 1, 1000 + i * 3000);
    CHECK(policy_decide(&p, &c, false, 9000 * MS, 10999 * MS).word == POLICY_FATAL);
    policy_reset(&p);
    for (unsigned i = 0; i < 3; i++)
        delay(&p, &c, 1, 1000 + i * 3000);
    delay(&p, &c, 1, 11001); /* the window is over */
    CHECK(p.count == 1);
}

static void what_is_started_again(void)
{
    struct service_config c = base_config();
    struct policy p = {0};
    c.success_codes[0] = 1 << 2; /* 2 */
    c.success_codes[143 / 8] = 1 << (143 % 8);
    CHECK(policy_is_success(&c, 0) && policy_is_success(&c, 2) && policy_is_success(&c, 143));
    CHECK(!policy_is_success(&c, 1) && !policy_is_success(&c, 256) && !policy_is_success(&c, -1));
    CHECK(policy_decide(&p, &c, true, 1, 2).word == POLICY_AGAIN);
    c.restart = RESTART_ON_FAILURE;
    CHECK(policy_decide(&p, &c, true, 1, 2).word == POLICY_DONE);
    CHECK(policy_decide(&p, &c, false, 1, 2).word == POLICY_AGAIN);
    c.restart = RESTART_NEVER;
    CHECK(policy_decide(&p, &c, false, 1, 2).word == POLICY_DONE);
    CHECK(policy_decide(&p, &c, false, 0, 2).word == POLICY_FATAL); /* it could not be started */
    c.type = SERVICE_ONESHOT;
    CHECK(policy_decide(&p, &c, false, 1, 2).word == POLICY_FATAL);
    c.restart = RESTART_ON_FAILURE;
    CHECK(policy_decide(&p, &c, true, 1, 2).word == POLICY_DONE);
    CHECK(policy_decide(&p, &c, false, 1, 2).word == POLICY_AGAIN);
}

int main(void)
{
    static const struct check_test tests[] = {
        CHECK_TEST(delays_double_up_to_the_cap), CHECK_TEST(odd_delays),
        CHECK_TEST(too_many_in_a_window), CHECK_TEST(what_is_started_again)};
    return check_run(tests, sizeof tests / sizeof tests[0]);
}
