/* MPS2 with a Cortex-M4 (AN386) in QEMU: start, reset, and semihosting for texts. */
#include "board.h"

#include <string.h>

extern unsigned char data_begin[], data_end[], data_image[];
extern unsigned char bss_begin[], bss_end[], stack_highest[];
int main(void);

/* A request to the emulator. */
static void semihosting(uintptr_t request, uintptr_t argument) {
    register uintptr_t first __asm__("r0") = request;
    register uintptr_t second __asm__("r1") = argument;
    __asm__ volatile("bkpt 0xab" : "+r"(first) : "r"(second) : "memory");
}

void board_print(const char *text) {
    semihosting(0x04, (uintptr_t)text);
}

void board_number(long long number) {
    char text[24];
    char *digit = text + sizeof text - 1;
    unsigned long long left = (unsigned long long)number;
    left = number < 0 ? 0ULL - left : left;
    *digit = '\0';
    do {
        *--digit = (char)('0' + left % 10U);
        left /= 10U;
    } while (left > 0U);
    if (number < 0) {
        *--digit = '-';
    }
    board_print(digit);
}

void board_exit(int success) {
    uintptr_t application_exit = 0x20026U;
    uintptr_t internal_error = 0x20024U;
    semihosting(0x18, success ? application_exit : internal_error);
    for (;;) {
    }
}

#define SYSTICK_CONTROL (*(volatile uint32_t *)0xe000e010U)
#define SYSTICK_RELOAD (*(volatile uint32_t *)0xe000e014U)
#define RESET_CONTROL (*(volatile uint32_t *)0xe000ed0cU)

static volatile uint32_t milliseconds;

static void tick(void) {
    milliseconds++;
}

uint64_t board_ms(void) {
    return milliseconds;
}

void board_reset(void) {
    RESET_CONTROL = 0x05fa0004U;
    for (;;) {
    }
}

static void fault(void) {
    board_print("the processor reports a fault\n");
    board_exit(0);
}

void reset_handler(void);
void reset_handler(void) {
    /* The processor's floating-point unit, which code for hard floats may use. */
    *(volatile uint32_t *)0xe000ed88U |= 0xfU << 20;
    memcpy(data_begin, data_image, (size_t)(data_end - data_begin));
    memset(bss_begin, 0, (size_t)(bss_end - bss_begin));
    SYSTICK_RELOAD = 25000U - 1U; /* 25 MHz */
    SYSTICK_CONTROL = 7U;
    board_exit(main() == 0);
}

__attribute__((section(".vectors"), used)) static void (*const vectors[16])(void) = {
    (void (*)(void))stack_highest, reset_handler, fault, fault, fault, fault, fault, 0,
    0, 0, 0, fault, fault, 0, fault, tick,
};
