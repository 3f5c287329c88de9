# Building and running the tests; included by the Makefile, after its own rules.
#
#     test, test-long   everything (test-long with the full repeat counts)
#     test-unit, test-box, test-fuzz, test-asan   one part
#     lint, run, deps

.PHONY: test test-long test-unit test-box test-fuzz test-asan tests-build lint run deps

T := $(B)/tests
unit_src := $(wildcard tests/unit/test_*.c)
unit_h   := $(wildcard tests/unit/*.h)
fuzz_src := $(wildcard tests/fuzz/fuzz_*.c)
# What unit tests and fuzz targets link: all of the program but the main() files.
lib_src := $(filter-out %/main.c,$(sort $(init_src) $(ctl_src) $(gateway_src)))
under_o := $(lib_src:%.c=%.o) $(llhttp_o)
# They use some of it each; what is not used is not loaded.
UNDER_LIBS := -Wl,--as-needed $(INIT_LIBS) -ljansson -larchive

# Programs that put themselves between the code and the allocator or a library.
UNIT_LD_test_config_fault := -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=strdup,--wrap=free,--wrap=ini_parse_stream

define unit_flavour
$(2)/libunder.a: $$(under_o:%=$(B)/$(1)/obj/%)
	@mkdir -p $$(@D)
	@rm -f $$@
	$$(AR) qcs $$@ $$^
$(2)/unit/%: tests/unit/%.c $$(unit_h) $(2)/libunder.a
	@mkdir -p $$(@D)
	$$(CC) $$(STD) $$(CPPFLAGS) $$(CFLAGS) $$(WARN) $(3) $$< $(2)/libunder.a $$(LDFLAGS) $$(UNIT_LD_$$*) $$(UNDER_LIBS) -lpthread -o $$@
endef
$(eval $(call unit_flavour,dyn,$(T),))
$(eval $(call unit_flavour,asan,$(B)/asan/tests,-fsanitize=address$(comma)undefined -fno-sanitize-recover=undefined))

FUZZ_CC ?= clang
FUZZ_SAN := -fsanitize=address,undefined -fno-sanitize-recover=undefined
$(B)/fuzz/obj/%.o: %.c $(gen)
	@mkdir -p $(@D)
	$(FUZZ_CC) $(STD) $(CPPFLAGS) -O1 -g $(FUZZ_SAN) -fsanitize=fuzzer-no-link -MMD -MP -c $< -o $@
$(B)/fuzz/obj/llhttp/%.o: $(LLHTTP)/%.c
	@mkdir -p $(@D)
	$(FUZZ_CC) -I$(LLHTTP_INC) -DLLHTTP_STRICT_MODE=1 -O1 -g $(FUZZ_SAN) -fsanitize=fuzzer-no-link -c $< -o $@
$(T)/fuzz/libunder.a: $(under_o:%=$(B)/fuzz/obj/%)
	@mkdir -p $(@D)
	@rm -f $@
	$(AR) qcs $@ $^
$(T)/fuzz/%: tests/fuzz/%.c $(T)/fuzz/libunder.a
	@mkdir -p $(@D)
	$(FUZZ_CC) $(STD) $(CPPFLAGS) -O1 -g $(FUZZ_SAN) -fsanitize=fuzzer $< $(T)/fuzz/libunder.a $(UNDER_LIBS) -o $@
-include $(wildcard $(B)/fuzz/obj/*/*.d)

$(T)/misbehave: tests/helpers/misbehave.c
	@mkdir -p $(@D)
	$(CC) $(STD) -D_GNU_SOURCE -O1 $(WARN) -static -pthread $< -o $@

# The asan programs find their helper where the rig looks for it: beside them.
$(B)/asan/tests/misbehave: $(T)/misbehave
	@mkdir -p $(@D)
	cp $< $@

unit_bin := $(unit_src:tests/%.c=$(T)/%)
asan_unit_bin := $(unit_src:tests/%.c=$(B)/asan/tests/%)
fuzz_bin := $(fuzz_src:tests/%.c=$(T)/%)

tests-build: all asan $(T)/misbehave $(B)/asan/tests/misbehave $(unit_bin) $(asan_unit_bin) $(fuzz_bin)

deps:
	@tests/install-deps.sh

# The libraries may only be there after install-deps has run, so the build is a make of its own.
test:
	@tests/install-deps.sh --test
	@$(MAKE) --no-print-directory -j2 tests-build
	@$(PYTHON) tests/run.py

test-long:
	@tests/install-deps.sh --test
	@$(MAKE) --no-print-directory -j2 tests-build
	@SANDBOX_TEST_LONG=1 $(PYTHON) tests/run.py

test-unit: $(unit_bin)
	@$(PYTHON) tests/run.py --unit
test-box: all $(T)/misbehave
	@$(PYTHON) tests/run.py --box $(ARGS)
test-fuzz: $(fuzz_bin)
	@$(PYTHON) tests/run.py --fuzz
test-asan: asan $(asan_unit_bin) $(B)/asan/tests/misbehave
	@$(PYTHON) tests/run.py --asan $(ARGS)

lint: $(gen)
	@tests/lint.sh

# CMD is one text; it reaches the script unchanged. make itself exits with 2 for any failure: for
# the text's own status call scripts/run 'TEXT'.
run: export RUN_TEXT = $(value CMD)
run:
	@tests/install-deps.sh >&2
	@[ -x $(B)/sandbox-init ] || echo 'building sandbox-init' >&2
	@$(MAKE) -s -j2 --no-print-directory $(B)/sandbox-init $(B)/sandboxctl $(B)/sandbox-gateway >&2
	@$(if $(value CMD),scripts/run "$$RUN_TEXT",scripts/run)
include tests/bench/bench.mk
