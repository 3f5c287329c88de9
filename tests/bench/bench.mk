# The benches; included by tests/tests.mk.
#
#     bench      prints one line each: name, value, aim, ok or MISSED; always ends well
#     ARGS='exec stream'   some of them only (exec stream memory start orphans
#                          teardown sessions services gateway)

.PHONY: bench bench-build

bench_src := $(wildcard tests/bench/bench_*.c)
bench_bin := $(bench_src:tests/%.c=$(T)/%)

$(T)/bench/%: tests/bench/%.c $(T)/libunder.a
	@mkdir -p $(@D)
	$(CC) $(STD) $(CPPFLAGS) $(CFLAGS) $(WARN) $< $(T)/libunder.a $(LDFLAGS) $(UNDER_LIBS) -o $@

$(T)/bench/bench_exec $(T)/bench/bench_http: $(T)/bench/%: tests/bench/%.c tests/bench/http_client.c $(T)/libunder.a
	@mkdir -p $(@D)
	$(CC) $(STD) $(CPPFLAGS) $(CFLAGS) $(WARN) $< tests/bench/http_client.c $(T)/libunder.a $(LDFLAGS) $(INIT_LIBS) -o $@

# Forks by the ten thousand: static, so that a fork copies little.
$(T)/bench/bench_orphans: tests/bench/bench_orphans.c
	@mkdir -p $(@D)
	$(CC) $(STD) $(CPPFLAGS) $(CFLAGS) $(WARN) -static $< -o $@

bench-build: all $(T)/misbehave $(bench_bin)

bench: bench-build
	@$(PYTHON) -B tests/bench/bench.py $(ARGS)
