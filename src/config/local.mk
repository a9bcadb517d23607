# SPDX-License-Identifier: BSD-3-Clause
# config: the program's options, decks, the command line
libvittrain_a_SOURCES += \
	src/config/command_line.c \
	src/config/command_line.h \
	src/config/deck.c \
	src/config/deck.h \
	src/config/option.c \
	src/config/option.h \
	src/config/option_table.c \
	src/config/option_types.h \
	src/config/optimizers.c \
	src/config/optimizers.h \
	src/config/options.c \
	src/config/options.h \
	src/config/options_check.c \
	src/config/options_list.h \
	src/config/phase.h
