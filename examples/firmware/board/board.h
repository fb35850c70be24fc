/* What the example needs of a board. */
#ifndef BOARD_H
#define BOARD_H

#include <stdint.h>

/* Memory that keeps its contents over a reset. */
#define BOARD_NOINIT __attribute__((section(".noinit")))

/* Prints a text. */
void board_print(const char *text);
/* Prints a number. */
void board_number(long long number);
/* Milliseconds since the start. */
uint64_t board_ms(void);
/* Resets the machine: everything but the memory of BOARD_NOINIT is lost. */
void board_reset(void) __attribute__((noreturn));
/* Ends the emulator. */
void board_exit(int success) __attribute__((noreturn));

#endif
