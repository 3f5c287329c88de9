# sandbox-init. `make help` lists the targets; README.md shows the two that matter.

comma := ,
ifeq ($(origin CC),default)
CC := gcc
endif
PREFIX    ?= /usr/local
VERSION   := 0.1.0
B         := build
PYTHON    ?= /usr/bin/python3

WARN := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wformat=2 -Wconversion \
        -Wvla -Wundef -Wwrite-strings -Werror
HARDEN := -D_FORTIFY_SOURCE=2 -fstack-protector-strong -fno-plt
# C unwinds nothing at run time; a debugger reads .debug_frame.
HARDEN += -fno-asynchronous-unwind-tables
# Node's HTTP parser comes as sources (Debian: node-llhttp) and is compiled into the gateway.
LLHTTP     ?= /usr/share/llhttp
LLHTTP_INC ?= /usr/share/include/llhttp
CPPFLAGS += -I. -I$(B)/gen -isystem $(LLHTTP_INC) -D_GNU_SOURCE -DSANDBOX_VERSION='"$(VERSION)"'
# What an idle init costs is mostly its code; it waits for system calls, not for the CPU.
CFLAGS ?= -Os -g
STD := -std=c17

INIT_DIRS := base config control logger sessions services import init
CTL_DIRS  := base control ctl
CLIENT_C  := $(addprefix control/,record.c record_json.c client.c paths.c)

init_src := $(filter-out control/client.c control/record_json.c,$(wildcard $(INIT_DIRS:%=%/*.c)))
ctl_src  := $(wildcard base/*.c ctl/*.c) $(CLIENT_C)
gateway_src := $(wildcard base/*.c gateway/*.c) $(CLIENT_C)
llhttp_o := llhttp/api.o llhttp/http.o llhttp/llhttp.o
# The page's files, as they are, inside the gateway.
page_src := $(wildcard gateway/openapi.json gateway/page/*.* gateway/page/vendor/*.*)
gen      := $(B)/gen/driver_bash.inc $(B)/gen/driver_posix.inc

INIT_LIBS := -lev -linih -lcap -lm
# The small libraries go into the dynamic build too: it needs nothing but libc in an image, starts
# a tenth faster and takes less memory.
DYN_LIBS := -Wl,-Bstatic -lev -linih -lcap -Wl,-Bdynamic -lm
# Of libarchive only tar is used; --gc-sections drops what would need compressors and XML.
GATEWAY_LIBS     := -lev -ljansson -larchive -lm
GATEWAY_DYN_LIBS := -Wl,--gc-sections -Wl,-Bstatic -lev -ljansson -larchive -Wl,-Bdynamic -lm

# One object tree per flavour: dyn (the default build), static, asan.
define flavour
$(B)/$(1)/obj/%.o: %.c $(gen)
	@mkdir -p $$(@D)
	$$(CC) $$(STD) $$(CPPFLAGS) $$(CFLAGS) $$(WARN) $(2) -MMD -MP -c $$< -o $$@
$(3)/sandbox-init: $$(init_src:%.c=$(B)/$(1)/obj/%.o)
	@mkdir -p $$(@D)
	$$(CC) $(2) $(4) $$^ $$(LDFLAGS) $(5) -o $$@
$(3)/sandboxctl: $$(ctl_src:%.c=$(B)/$(1)/obj/%.o)
	@mkdir -p $$(@D)
	$$(CC) $(2) $(4) $$^ $$(LDFLAGS) -o $$@
$(B)/$(1)/obj/llhttp/%.o: $$(LLHTTP)/%.c
	@mkdir -p $$(@D)
	$$(CC) -I$$(LLHTTP_INC) -DLLHTTP_STRICT_MODE=1 -O2 -g $(2) -c $$< -o $$@
$(B)/$(1)/obj/%.o: %.S $$(page_src)
	@mkdir -p $$(@D)
	$$(CC) $(2) -c $$< -o $$@
$(3)/sandbox-gateway: $$(gateway_src:%.c=$(B)/$(1)/obj/%.o) $$(llhttp_o:%=$(B)/$(1)/obj/%) \
		$(B)/$(1)/obj/gateway/page_files.o
	@mkdir -p $$(@D)
	$$(CC) $(2) $(4) $$^ $$(LDFLAGS) $(6) -o $$@
-include $$(wildcard $(B)/$(1)/obj/*/*.d)
endef

.PHONY: all static asan install clean help
all: $(B)/sandbox-init $(B)/sandboxctl $(B)/sandbox-gateway static
static: $(B)/static/sandbox-init $(B)/static/sandboxctl $(B)/static/sandbox-gateway
asan: $(B)/asan/sandbox-init $(B)/asan/sandboxctl $(B)/asan/sandbox-gateway

$(eval $(call flavour,dyn,$(HARDEN) -fPIE,$(B),-pie -Wl$(comma)-z$(comma)relro$(comma)-z$(comma)now,$$(DYN_LIBS),$$(GATEWAY_DYN_LIBS)))
$(eval $(call flavour,st,$(HARDEN) -ffunction-sections -fdata-sections,$(B)/static,-static -s -Wl$(comma)--gc-sections,$(INIT_LIBS),$(GATEWAY_LIBS)))
$(eval $(call flavour,asan,-fsanitize=address$(comma)undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer,$(B)/asan,,$(INIT_LIBS),$(GATEWAY_LIBS)))

# Where lowdown(1) is (Debian: lowdown), the manuals become man pages too.
LOWDOWN ?= lowdown
has_lowdown := $(shell command -v $(LOWDOWN) 2>/dev/null)
MAN := $(DESTDIR)$(PREFIX)/share/man
# man_page NAME,SECTION: the first line of the source tells the same.
define man_page
	install -d $(MAN)/man$(2)
	sed 1d docs/$(1).$(2).md | $(LOWDOWN) -s -Tman -m title=$(1) -m section=$(2) -m shiftheadinglevelby=-1 \
		>$(MAN)/man$(2)/$(1).$(2)
endef
install: all
	install -D -m755 $(B)/static/sandbox-init $(DESTDIR)$(PREFIX)/bin/sandbox-init
	install -D -m755 $(B)/static/sandboxctl $(DESTDIR)$(PREFIX)/bin/sandboxctl
	install -D -m755 $(B)/static/sandbox-gateway $(DESTDIR)$(PREFIX)/bin/sandbox-gateway
	install -d $(DESTDIR)$(PREFIX)/share/doc/sandbox-init
	install -m644 README.md LICENSE sandbox.ini.example docs/*.md $(DESTDIR)$(PREFIX)/share/doc/sandbox-init/
	install -D -m644 ctl/completion.bash $(DESTDIR)$(PREFIX)/share/bash-completion/completions/sandboxctl
ifneq ($(has_lowdown),)
	$(call man_page,sandbox-init,8)
	$(call man_page,sandboxctl,1)
	$(call man_page,sandbox.ini,5)
else
	@echo 'no man pages: there is no lowdown(1); the manuals are in share/doc/sandbox-init'
endif

# The shell drivers are scripts of their own, embedded as C strings without their comments.
$(B)/gen/driver_%.inc: sessions/driver.%.sh
	@mkdir -p $(@D)
	sed -e '/^ *#/d' -e '/^$$/d' -e 's/[\\"]/\\&/g' -e 's/^ *\(.*\)$$/"\1\\n"/' $< >$@

clean:
	rm -rf $(B)

help:
	@echo 'make            build/sandbox-init, sandboxctl, sandbox-gateway, and all static in build/static/'
	@echo 'make run        boot it as PID 1 of a new namespace and serve on 127.0.0.1:3000 (PORT=, WORKSPACE=)'
	@echo "                CMD='text': run that text in it and stop"
	@echo 'make test       all tests (test-long: with the full repeat counts); parts: test-unit, test-fuzz, and'
	@echo "                test-box ARGS='tests/docs -k TEXT': what pytest takes; without ARGS all of its tests"
	@echo 'make install    DESTDIR= PREFIX=/usr/local: programs, completion, manuals (man pages where lowdown is)'
	@echo 'make asan       all with ASan and UBSan in build/asan/'
	@echo 'make lint       clang-format, clang-tidy, cppcheck, shellcheck'
	@echo 'make clean      remove build/'
include tests/tests.mk
