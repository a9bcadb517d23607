# SPDX-License-Identifier: BSD-3-Clause
# config: the program's options, decks, the command line
libvittrain_a_SOURCES += \
	src/config/command_line.c \
	src/config/command_line.h \
	src/config/command_options.h \
	src/config/data_options.h \
	src/config/deck.c \
	src/config/deck.h \
	src/config/mesh_options.h \
	src/config/model_options.h \
	src/config/option.c \
	src/config/option.h \
	src/config/option_changes.c \
	src/config/option_changes.h \
	src/config/option_conditions.c \
	src/config/option_conditions.h \
	src/config/option_types.h \
	src/config/optimizers.c \
	src/config/optimizers.h \
	src/config/options.c \
	src/config/options.h \
	src/config/options_help.c \
	src/config/options_table.c \
	src/config/options_table_commands.inc \
	src/config/phase.h \
	src/config/run_options.h \
	src/config/train_options.h
