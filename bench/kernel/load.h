// What the parts of the guest's load share.
#ifndef LOAD_H
#define LOAD_H
#define _GNU_SOURCE
#include <stddef.h>

/* Ends the program, and so the guest, with the call that failed. */
#define MUST(call)                                        \
    ({                                                    \
        __typeof__(call) result_ = (call);                \
        if (result_ < 0)                                  \
            fail(#call, __FILE_NAME__, __LINE__);         \
        result_;                                          \
    })
void fail(const char *what, const char *file, int line);

/* The time of the guest in microseconds: a count of instructions. */
double now(void);
/* A line for the report: the time since `start` for each of `count` operations. */
void report(const char *row, double start, long count);
/* The n-th of a fixed sequence of numbers. */
unsigned random_number(unsigned n);
/* `size` bytes that differ with `seed`. */
char *content(size_t size, unsigned seed);

extern long count_files, count_mib, count_random, count_synced;

/* names.c: one directory of many small files. */
void names_create(void);
void names_warm(void);
void names_cold_stat(void);
void names_cold_read(void);
void names_cold_list(void);
void names_change(void);
void names_synced(void);
void names_cut(void);

/* data.c: one large file. */
void data_write(void);
void data_cached(void);
void data_cold(void);
void data_cold_random(void);
void data_overwrite(void);

/* whole.c: many files at once, and the volume as a whole. */
void whole_prepare(void);
void whole_replace(void);
void whole_together(void);
void whole_cut(const char *from, const char *to);
void whole_mount(const char *device, const char *type, const char *options);

#endif
