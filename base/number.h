/*
 * Numbers and words from outside, one checked parser each. All of them take the whole string
 * (no leading blanks, no sign, nothing after the value) and return 0 or -1; *out is only set on
 * success.
 */
#ifndef BASE_NUMBER_H
#define BASE_NUMBER_H

#include <stddef.h>
#include <stdint.h>

/* Decimal digits, 0 … max. */
int number_parse_u64(const char *text, uint64_t max, uint64_t *out);

/* A duration in milliseconds: digits and one of ms, s, m, h ("500ms", "5s", "10m", "1h"), with an
 * optional decimal fraction ("0.3s"); a bare "0" is allowed, any other number without a unit is
 * not, nor is one that comes to less than a millisecond. At most 365 days. */
int number_parse_duration_ms(const char *text, uint64_t *out);

/* A size in bytes: digits and an optional K, M or G (powers of 1024). At most 1 TiB. */
int number_parse_size(const char *text, uint64_t *out);

/* "500ms", "5s", "10m": the shortest exact form of a duration. buf holds at least 32 bytes. */
const char *number_format_duration(uint64_t ms, char *buf, size_t size);

/* A signal by name with or without SIG, in any case ("TERM", "SIGTERM"), by number ("15"), or
 * real-time ("RTMIN+3"). 1 … 64 (SIGRTMAX). */
int signal_parse(const char *text, int *out);

/* The i-th name, without SIG; NULL behind the last one. For nearest_word(). */
const char *signal_word(const void *unused, size_t i);

/* "SIGTERM" for 15; "SIGRTMIN+3" for a real-time signal; "SIG99" beyond. Static or in buf (>= 16).
 */
const char *signal_name(int sig, char *buf, size_t size);

/* Names of sessions, processes and services: [A-Za-z0-9][A-Za-z0-9_.-]{0,63}. */
int name_check(const char *name);

/* Names of environment variables that a shell can export: [A-Za-z_][A-Za-z0-9_]*. */
int env_name_check(const char *name, size_t len);

#endif
